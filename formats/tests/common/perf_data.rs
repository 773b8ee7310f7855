//! Writes `perf.data` files: what `perf record` would, for machines without perf, in both byte orders.

#![allow(dead_code, reason = "each test uses its part")]

/// A record's fields, in one byte order.
#[derive(Clone, Debug)]
pub struct Fields {
    pub bytes: Vec<u8>,
    is_big: bool,
}

macro_rules! writer {
    ($name:ident, $number:ty) => {
        pub fn $name(mut self, number: $number) -> Fields {
            self.bytes.extend(match self.is_big {
                true => number.to_be_bytes(),
                false => number.to_le_bytes(),
            });
            self
        }
    };
}

impl Fields {
    pub fn new(is_big: bool) -> Fields {
        Fields {
            bytes: Vec::new(),
            is_big,
        }
    }

    writer!(u16, u16);
    writer!(u32, u32);
    writer!(u64, u64);

    pub fn put(mut self, bytes: &[u8]) -> Fields {
        self.bytes.extend(bytes);
        self
    }

    /// Text, filled up with NULs.
    pub fn text(self, text: &str, bytes: usize) -> Fields {
        let mut filled = text.as_bytes().to_vec();
        filled.resize(bytes, 0);
        self.put(&filled)
    }
}

pub const IDENTIFIER: u64 = 1 << 16;
/// IP, TID, TIME, CPU, PERIOD, RAW, IDENTIFIER: what perf asks for.
pub const USUAL: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 8 | 1 << 10 | IDENTIFIER;

pub const QUEUE: u16 = 2097;
pub const ISSUE: u16 = 2104;
pub const COMPLETE: u16 = 2107;

/// Descriptions of three block tracepoints, as a kernel gives them: number, name, fields.
pub fn formats(with_comm: bool) -> Vec<(&'static str, String)> {
    let comm = if with_comm {
        "\tfield:char comm[16];\toffset:40;\tsize:16;\tsigned:0;\n"
    } else {
        ""
    };
    let format = |name: &str, id: u16, more: &str| {
        let text = format!(
            "name: {name}\nID: {id}\nformat:\n\
             \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
             \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
             \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
             \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
             \tfield:char rwbs[8];\toffset:32;\tsize:8;\tsigned:0;\n{more}"
        );
        ("block", text)
    };
    let error = "\tfield:int error;\toffset:28;\tsize:4;\tsigned:1;\n";
    vec![
        format("block_bio_queue", QUEUE, comm),
        format("block_rq_issue", ISSUE, comm),
        format("block_rq_complete", COMPLETE, error),
    ]
}

/// A block event; of 56 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub id: u16,
    pub time: u64,
    pub cpu: u32,
    pub thread: u32,
    pub sector: u64,
    pub sectors: u32,
    pub error: i32,
    pub rwbs: &'static str,
    pub comm: &'static str,
}

/// A file under way.
#[derive(Clone, Debug)]
pub struct PerfData {
    pub is_big: bool,
    pub sample_type: u64,
    /// Ids of the attributes, one each; all are tracepoints.
    pub ids: Vec<u64>,
    pub formats: Vec<(&'static str, String)>,
    pub features: Vec<(u64, Vec<u8>)>,
    pub records: Vec<u8>,
}

impl PerfData {
    pub fn new(is_big: bool) -> PerfData {
        PerfData {
            is_big,
            sample_type: USUAL,
            ids: vec![70, 71, 72],
            formats: formats(true),
            features: Vec::new(),
            records: Vec::new(),
        }
    }

    pub fn fields(&self) -> Fields {
        Fields::new(self.is_big)
    }

    pub fn record_bytes(&self, kind: u32, flags: u16, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(8 + body.len()).expect("a record of 16 bits");
        self.fields().u32(kind).u16(flags).u16(size).put(body).bytes
    }

    pub fn record(&mut self, kind: u32, flags: u16, body: &[u8]) -> &mut PerfData {
        let bytes = self.record_bytes(kind, flags, body);
        self.records.extend(bytes);
        self
    }

    pub fn round(&mut self) -> &mut PerfData {
        self.record(68, 0, &[])
    }

    /// A sample of the usual fields.
    pub fn sample(&mut self, event: Block) -> &mut PerfData {
        let dev = 8 << 20 | 16;
        let raw = self
            .fields()
            .u16(event.id)
            .u16(0)
            .u32(event.thread)
            .u32(dev)
            .u32(0)
            .u64(event.sector)
            .u32(event.sectors)
            .u32(event.error.cast_unsigned())
            .text(event.rwbs, 8)
            .text(event.comm, 16)
            .put(&[0; 4])
            .bytes;
        let index = [QUEUE, ISSUE, COMPLETE]
            .iter()
            .position(|id| *id == event.id);
        let id = index
            .and_then(|index| self.ids.get(index))
            .copied()
            .unwrap_or(0);
        let mut fields = self.fields();
        if self.sample_type & IDENTIFIER != 0 {
            fields = fields.u64(id);
        }
        let body = fields
            .u64(0xffff_8000_0000_0000) // ip
            .u32(event.thread)
            .u32(event.thread)
            .u64(event.time)
            .u32(event.cpu)
            .u32(0)
            .u64(1) // period
            .u32(raw.len() as u32)
            .put(&raw)
            .bytes;
        self.record(9, 2, &body)
    }

    /// What stands behind a record that is no sample.
    pub fn trailer(&self, time: u64) -> Vec<u8> {
        let fields = self.fields().u64(0).u64(time).u64(0);
        fields.u64(self.ids[0]).bytes
    }

    pub fn tracing_data(&self) -> Vec<u8> {
        let mut fields = self
            .fields()
            .put(b"\x17\x08\x44tracing0.6\0")
            .put(&[u8::from(self.is_big), 8])
            .u32(4096)
            .put(b"header_page\0")
            .u64(3)
            .put(b"abc")
            .put(b"header_event\0")
            .u64(0)
            .u32(1)
            .u64(2)
            .put(b"ff");
        let mut systems: Vec<&str> = self.formats.iter().map(|(system, _)| *system).collect();
        systems.dedup();
        fields = fields.u32(systems.len() as u32);
        for name in systems {
            let of_system = self.formats.iter().filter(|(system, _)| *system == name);
            fields = fields.put(name.as_bytes()).put(&[0]);
            fields = fields.u32(of_system.clone().count() as u32);
            for (_, text) in of_system {
                fields = fields.u64(text.len() as u64).put(text.as_bytes());
            }
        }
        fields.u32(0).u32(0).u64(0).bytes
    }

    fn attr(&self, number: usize) -> Vec<u8> {
        let sample_id_all = 1u64 << 18;
        let flags = if self.is_big {
            sample_id_all.reverse_bits()
        } else {
            sample_id_all
        };
        self.fields()
            .u32(2)
            .u32(112)
            .u64(2000 + number as u64)
            .u64(1)
            .u64(self.sample_type)
            .u64(20)
            .u64(flags)
            .put(&[0; 64])
            .bytes
    }

    fn magic(&self) -> &'static [u8] {
        if self.is_big {
            b"2ELIFREP"
        } else {
            b"PERFILE2"
        }
    }

    /// As perf writes it to a file.
    pub fn file(&self) -> Vec<u8> {
        let mut features = self.features.clone();
        if !self.formats.is_empty() {
            features.push((1, self.tracing_data()));
        }
        features.sort_by_key(|(number, _)| *number);
        let ids_at = 104u64;
        let attrs_at = ids_at + 8 * self.ids.len() as u64;
        let data_at = attrs_at + 128 * self.ids.len() as u64;
        let table_at = data_at + self.records.len() as u64;
        let mut at = table_at + 16 * features.len() as u64;
        let bits = features
            .iter()
            .fold(0u64, |bits, (number, _)| bits | 1 << number);
        let mut fields = self
            .fields()
            .put(self.magic())
            .u64(104)
            .u64(128)
            .u64(attrs_at)
            .u64(128 * self.ids.len() as u64)
            .u64(data_at)
            .u64(self.records.len() as u64)
            .u64(0)
            .u64(0)
            .u64(bits)
            .put(&[0; 24]);
        for id in &self.ids {
            fields = fields.u64(*id);
        }
        for number in 0..self.ids.len() {
            let place = ids_at + 8 * number as u64;
            fields = fields.put(&self.attr(number)).u64(place).u64(8);
        }
        fields = fields.put(&self.records);
        for (_, bytes) in &features {
            fields = fields.u64(at).u64(bytes.len() as u64);
            at += bytes.len() as u64;
        }
        features
            .iter()
            .fold(fields, |fields, (_, bytes)| fields.put(bytes))
            .bytes
    }

    /// As perf writes it into a pipe.
    pub fn pipe(&self) -> Vec<u8> {
        let mut out = self.fields().put(self.magic()).u64(16).bytes;
        for (number, id) in self.ids.iter().enumerate() {
            let body = self.fields().put(&self.attr(number)).u64(*id).bytes;
            out.extend(self.record_bytes(64, 0, &body));
        }
        for (number, bytes) in &self.features {
            let body = self.fields().u64(*number).put(bytes).bytes;
            out.extend(self.record_bytes(80, 0, &body));
        }
        let mut tracing = self.tracing_data();
        tracing.resize(tracing.len().next_multiple_of(8), 0);
        let body = self.fields().u32(tracing.len() as u32).bytes;
        out.extend(self.record_bytes(66, 0, &body));
        out.extend(tracing);
        out.extend(&self.records);
        out
    }

    /// The same with its records compressed, in pieces.
    pub fn compressed(&self) -> PerfData {
        let compressed = zstd::encode_all(&self.records[..], 1).expect("memory");
        let mut file = self.clone();
        file.records.clear();
        for piece in compressed.chunks(100) {
            file.record(81, 0, piece);
        }
        file
    }
}
