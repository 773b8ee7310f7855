use super::*;

/// A run with every kind of entry, none of them by default.
fn run() -> Run {
    let latency = Latency {
        count: 4,
        mean: 2.5,
        stddev: 0.5,
        min: 1,
        p50: 2,
        p90: 3,
        p99: 4,
        p99_9: 5,
        p99_99: 6,
        max: 7,
    };
    let target = Target {
        path: Some("/dev/nvme0n1".to_owned()),
        kind: TargetKind::Block,
        size_bytes: Some(1 << 30),
        model: Some("M".to_owned()),
        firmware: None,
        logical_sector: Some(512),
        physical_sector: Some(4096),
        scheduler: Some("none".to_owned()),
        write_cache: Some("write back".to_owned()),
        direct: true,
        filesystem: None,
        operations: 5,
        bytes: 16_384,
        offset_sum: 40_960,
    };
    let figures = OpFigures {
        requests: 5,
        bytes: 16_384,
        throughput_mb_s: 1.5,
        iops: 4.0,
        service_ns: Some(latency),
        response_ns: None,
        lag_ns: None,
        recorded_ns: None,
        sizes: vec![SizeFigures {
            up_to_bytes: Some(4096),
            requests: 5,
            service_ns: None,
            recorded_ns: None,
        }],
    };
    Run {
        label: "nvme0n1 light".to_owned(),
        profile: Some("light".to_owned()),
        depth_cap: 8,
        timing: Timing::Asap,
        loop_kind: LoopKind::Closed,
        engine: "uring".to_owned(),
        workers: 1,
        order: 2,
        targets: vec![target],
        write_mode: WriteMode::SkipWrites,
        payload: Payload {
            kind: "random".to_owned(),
            seed: 3,
            compressible_percent: 25,
            duplicate_percent: 5,
        },
        overlapping: Some(7),
        verified: None,
        mapping: Mapping {
            mode: MappingMode::Wrap,
            remapped_share: 0.25,
            offset_bytes: Some(-512),
            region_bytes: None,
            widened_requests: 2,
            widened_bytes: 512,
        },
        passes: 1,
        elapsed_ns: 1_000,
        warmup_ns: 0,
        requests: 5,
        bytes: 16_384,
        throughput_mb_s: 1.5,
        iops: 4.0,
        service_ns: Some(latency),
        response_ns: Some(latency),
        lag_ns: None,
        schedule: Some(Schedule {
            speed: 2.0,
            ..Schedule::default()
        }),
        by_op: BTreeMap::from([("read".to_owned(), figures)]),
        skipped: vec![Skipped {
            op: "write".to_owned(),
            reason: "it changes data (--skip-writes)".to_owned(),
            requests: 1,
            bytes: 4096,
        }],
        outstanding: Outstanding {
            cap: 8,
            mean: 7.5,
            max: 8,
            at_cap_share: 0.75,
        },
        recorded_ns: None,
        intervals: vec![Interval {
            elapsed_ns: 1_000,
            requests: 5,
            bytes: 16_384,
            outstanding_mean: 7.5,
            service_ns: None,
            response_ns: None,
            lag_ns: None,
        }],
        histograms: BTreeMap::from([("all".to_owned(), "HISTFAAA".to_owned())]),
        errors: vec![ErrorCount {
            op: "read".to_owned(),
            errno: Some(5),
            message: "Input/output error (os error 5)".to_owned(),
            count: 1,
        }],
        tool: ToolUse {
            cpu_user_ns: 10,
            cpu_system_ns: 20,
            cpu_per_request_ns: 6.0,
            submitter_busy_share: 0.5,
            submitter_spinning_share: 0.25,
            starved_share: 0.0,
            littles_law_error: 0.0,
        },
        valid: false,
        reasons: vec!["1 of 5 requests failed".to_owned()],
        notes: vec![],
    }
}

fn document() -> Document {
    let experiment = Experiment {
        tape: Tape {
            id: "00ff".to_owned(),
            path: None,
            requests: 6,
            bytes: 20_480,
        },
        host: Host {
            hostname: Some("h".to_owned()),
            kernel: None,
            cpus: Some(2),
        },
        command: vec!["iotape".to_owned(), "replay".to_owned()],
        seed: 3,
        started: Some("2026-01-02T03:04:05Z".to_owned()),
    };
    Document::new(experiment, vec![run()])
}

/// The document as it is written. Fields may be added; what stands here may not change.
const GOLDEN: &str = r#"{
  "schema": "iotape.result/1",
  "experiment": {
    "tape": {"id": "00ff", "path": null, "requests": 6, "bytes": 20480},
    "host": {"hostname": "h", "kernel": null, "cpus": 2},
    "command": ["iotape", "replay"],
    "seed": 3,
    "started": "2026-01-02T03:04:05Z"
  },
  "runs": [{
    "label": "nvme0n1 light",
    "profile": "light",
    "depth_cap": 8,
    "timing": "asap",
    "loop": "closed",
    "engine": "uring",
    "workers": 1,
    "order": 2,
    "targets": [{
      "path": "/dev/nvme0n1", "kind": "block", "size_bytes": 1073741824, "model": "M",
      "firmware": null, "logical_sector": 512, "physical_sector": 4096, "scheduler": "none",
      "write_cache": "write back", "direct": true, "filesystem": null,
        "operations": 5, "bytes": 16384, "offset_sum": 40960
    }],
    "write_mode": "skip_writes",
    "payload": {"kind": "random", "seed": 3, "compressible_percent": 25, "duplicate_percent": 5},
    "overlapping": 7, "verified": null,
    "mapping": {"mode": "wrap", "remapped_share": 0.25, "offset_bytes": -512, "region_bytes": null,
      "widened_requests": 2, "widened_bytes": 512},
    "passes": 1,
    "elapsed_ns": 1000,
    "warmup_ns": 0,
    "requests": 5,
    "bytes": 16384,
    "throughput_mb_s": 1.5,
    "iops": 4.0,
    "service_ns": {
      "count": 4, "mean": 2.5, "stddev": 0.5, "min": 1,
      "p50": 2, "p90": 3, "p99": 4, "p99_9": 5, "p99_99": 6, "max": 7
    },
    "response_ns": {
      "count": 4, "mean": 2.5, "stddev": 0.5, "min": 1,
      "p50": 2, "p90": 3, "p99": 4, "p99_9": 5, "p99_99": 6, "max": 7
    },
    "lag_ns": null,
    "schedule": {
      "speed": 2.0, "delayed_by_cap_share": 0.0, "delayed_by_cap_ns": 0, "total_lag_ns": 0,
      "late_share": 0.0, "end_drift_ns": 0, "dependent_share": 0.0, "out_of_order": 0,
      "out_of_place": 0
    },
    "by_op": {
      "read": {
        "requests": 5, "bytes": 16384, "throughput_mb_s": 1.5, "iops": 4.0,
        "service_ns": {
          "count": 4, "mean": 2.5, "stddev": 0.5, "min": 1,
          "p50": 2, "p90": 3, "p99": 4, "p99_9": 5, "p99_99": 6, "max": 7
        },
        "response_ns": null,
        "lag_ns": null,
        "recorded_ns": null,
        "sizes": [{
          "up_to_bytes": 4096, "requests": 5, "service_ns": null, "recorded_ns": null
        }]
      }
    },
    "skipped": [{
      "op": "write", "reason": "it changes data (--skip-writes)", "requests": 1, "bytes": 4096
    }],
    "outstanding": {"cap": 8, "mean": 7.5, "max": 8, "at_cap_share": 0.75},
    "recorded_ns": null,
    "intervals": [{
      "elapsed_ns": 1000, "requests": 5, "bytes": 16384, "outstanding_mean": 7.5,
      "service_ns": null, "response_ns": null, "lag_ns": null
    }],
    "histograms": {"all": "HISTFAAA"},
    "errors": [{
      "op": "read", "errno": 5, "message": "Input/output error (os error 5)", "count": 1
    }],
    "tool": {
      "cpu_user_ns": 10, "cpu_system_ns": 20, "cpu_per_request_ns": 6.0,
      "submitter_busy_share": 0.5, "submitter_spinning_share": 0.25, "starved_share": 0.0,
      "littles_law_error": 0.0
    },
    "valid": false,
    "reasons": ["1 of 5 requests failed"],
    "notes": []
  }]
}"#;

#[test]
fn the_document_is_the_golden_one_and_reads_back() {
    let golden: serde_json::Value = serde_json::from_str(GOLDEN).unwrap();
    let written = document().to_json().unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&written).unwrap(),
        golden
    );
    assert!(written.ends_with("}\n"));
    assert_eq!(Document::from_json(&written).unwrap(), document());
    assert_eq!(Document::from_json(GOLDEN).unwrap(), document());
}

#[test]
fn unknown_fields_are_ignored_and_missing_ones_are_unknown() {
    let text = r#"{"schema": "iotape.result/1", "later": 1, "experiment": {"seed": 9, "x": {}},
                   "runs": [{"label": "a", "depth_cap": 4, "invented": [1, 2]}]}"#;
    let document = Document::from_json(text).unwrap();
    assert_eq!(document.experiment.seed, 9);
    let expected = Run {
        label: "a".to_owned(),
        depth_cap: 4,
        ..Run::default()
    };
    assert_eq!(document.runs, [expected]);
}

#[test]
fn other_documents_are_refused_with_what_they_are() {
    let error = |text| Document::from_json(text).unwrap_err().to_string();
    assert_eq!(
        error(r#"{"schema": "iotape.result/2", "runs": 3}"#),
        r#"expected a document of schema "iotape.result/1", found "iotape.result/2""#
    );
    assert!(error(r#"{"fio version": "fio-3.33"}"#).ends_with(r#"found """#));
    assert!(error("PK\u{3}\u{4}").starts_with("not a result document (iotape.result/1):"));
    assert!(
        error(r#"{"schema": "iotape.result/1", "experiment": {}, "runs": 3}"#)
            .starts_with("not a result document")
    );
}
