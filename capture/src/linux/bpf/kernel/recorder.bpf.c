// SPDX-License-Identifier: GPL-2.0
/*
 * Block I/O told to user space: of a request its beginning and its end, each from the processor where
 * it happens; of a bio one record, when it is done.
 *
 * A request (device layer: `struct request`) is known by its pointer and the time of its allocation,
 * by which user space puts both together: what one processor wrote need not be fetched by another
 * while a request waits. A bio (queue layer, and whoever asks for a request) waits in a table under
 * its pointer. User space maps table and rings and needs no system call to read them.
 *
 * The table is hashed by pointer, with a window of slots for each hash. A slot belongs to whoever
 * exchanged its key from 0; after that one context at a time touches it, since the kernel never
 * queues and completes the same bio at once. So nothing is locked or allocated here.
 */
#include "kernel.h"

#define DEVICES 64
#define WINDOW 8
/* More bios in one request than this are not looked at. */
#define BIOS_PER_REQUEST 256
/* Records that may be reserved by interrupts between a look at the ring and a reservation. */
#define NESTED 8

#define UNKNOWN_LATENCY (~0ull)
#define UNKNOWN_QUEUE ((1ull << 48) - 1)
#define UNKNOWN_PROCESS ((1ull << 24) - 1)

/* device_modes */
#define QUEUE_LAYER 1
#define WITHOUT_FUA 2

/* entry.place: sector in 48 bits, then */
#define ERROR_SHIFT 48
#define ERROR_MASK (0xffull << ERROR_SHIFT)
#define DEVICE_SHIFT 56
#define ERRNO (1ull << 62)
#define SECTOR_MASK ((1ull << 48) - 1)

/*
 * A bio on its way, and a record: 64 bytes, one cache line. `record.rs` reads it.
 */
struct entry {
	u64 time_ns;
	/* In the table: the pointer. In a ring, of a request: its identity; of a bio: from time_ns until its end. */
	u64 key;
	/* In the table: parts in the low 32 bits. Else: time in the queue in 48 bits. Then the processor. */
	u64 queue;
	u64 place;
	/* Control group in 40 bits, process in 24. */
	u64 owner;
	u32 length;
	u32 opf;
	char comm[16];
};

/* In a ring, the last byte of the name tells the lap in which the record was written, and what it is. */
#define KIND_SHIFT 2
/* A bio from its beginning to its end. */
#define WHOLE (0 << KIND_SHIFT)
/* Of a request: issued; requeued; an error of a part that is done; done. */
#define BEGUN (1 << KIND_SHIFT)
#define REQUEUED (2 << KIND_SHIFT)
#define PART_FAILED (3 << KIND_SHIFT)
#define DONE (4 << KIND_SHIFT)
/* Done, and if it was not issued, nobody expects that it was. */
#define MAY_BE_UNISSUED (5 << KIND_SHIFT)

/* What a processor has to tell: written here, read by user space. */
struct processor {
	u64 head;
	u64 lost;
	/* Bios for which there was no slot. */
	u64 untracked;
	u64 unpaired;
	u64 merges;
	u64 splits;
	u64 requeues;
	/* Flushes asked for, and flushes issued. */
	u64 flush_wishes;
	u64 flushes;
	/* What was lost of requests that had begun. */
	u64 ends_lost;
	u64 pad[6];
	/* Written by user space. */
	u64 tail;
	/* User space was woken, and has not looked since. */
	u64 woken;
	u64 pad_tail[14];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct entry);
} bios SEC(".maps"), rings SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct processor);
} processors SEC(".maps");

/* Ends cannot be told: nothing begins until user space has taken what there is, and sets it to 0. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} blocked SEC(".maps");

/* Wakes user space when a ring is half full; nothing else goes through it. */
struct {
	NUMBER(type, BPF_MAP_TYPE_RINGBUF);
	NUMBER(max_entries, 4096);
} wake SEC(".maps");

/* Set by the loader. */
const volatile u32 device_count = 0;
const volatile u32 device_numbers[DEVICES] = {};
const volatile u8 device_modes[DEVICES] = {};
const volatile u32 bio_mask = 0;
const volatile u32 ring_shift = 0;
/* The processor may let other processors see stores in another order than they were made. */
const volatile u8 weakly_ordered = 1;

char _license[] SEC("license") = "GPL";

/* Where the keys count from, as a number: always the same, once it is written. */
u64 origin = 0;

/*
 * The key of something in the kernel: its distance from one of our maps. The verifier lets nobody
 * calculate with a pointer, but the difference of two is a number.
 */
INLINE u64 key_of(const void *pointer)
{
	u64 key = (u64)pointer;

	asm volatile("%0 -= %1" : "+r"(key) : "r"(&bios));
	return key;
}

/* The same of an address. */
INLINE u64 key_of_address(u64 address)
{
	if (!*(volatile u64 *)&origin)
		*(volatile u64 *)&origin = (u64)&bios;
	return address - *(volatile u64 *)&origin;
}

INLINE u64 address_of(const void *pointer)
{
	return key_of(pointer) - key_of_address(0);
}

INLINE u32 start_of(u64 key)
{
	return (u32)((key * 0x9e3779b97f4a7c15ull) >> 32) & bio_mask;
}

INLINE struct entry *find(u64 key)
{
	u32 start = start_of(key);

#pragma clang loop unroll(disable)
	for (u32 i = 0; i < WINDOW; i++) {
		u32 index = (start + i) & bio_mask;
		struct entry *entry = bpf_map_lookup_elem(&bios, &index);

		if (entry && entry->key == key)
			return entry;
	}
	return 0;
}

/* The slot of a key that begins now. `known`: something of this key is there already. */
INLINE struct entry *claim(u64 key, int *known)
{
	u32 start = start_of(key);

	*known = 0;
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < WINDOW; i++) {
		u32 index = (start + i) & bio_mask;
		struct entry *entry = bpf_map_lookup_elem(&bios, &index);

		if (!entry)
			return 0;
		if (entry->key == key) {
			*known = 1;
			return entry;
		}
		if (entry->key == 0 && __sync_val_compare_and_swap(&entry->key, 0, key) == 0)
			return entry;
	}
	return 0;
}

INLINE void release(struct entry *entry)
{
	if (weakly_ordered)
		__sync_lock_test_and_set(&entry->key, 0);
	else
		*(volatile u64 *)&entry->key = 0;
}

INLINE struct processor *this_processor(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&processors, &cpu);
}

#define COUNT(counter)                                                   \
	do {                                                             \
		struct processor *counting = this_processor();           \
		if (counting)                                            \
			__sync_fetch_and_add(&counting->counter, 1);     \
	} while (0)

/* A slot in this processor's ring. */
struct reserved {
	struct processor *processor;
	struct entry *record;
	u64 at;
	u64 filled;
};

/* Reserves a slot, if more than `spare` are free. */
INLINE int reserve(struct reserved *to, u64 spare)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 slots = 1ull << ring_shift;
	u32 index;

	to->processor = bpf_map_lookup_elem(&processors, &cpu);
	if (!to->processor)
		return 0;
	to->filled = to->processor->head - *(volatile u64 *)&to->processor->tail;
	if (to->filled >= slots - spare)
		return 0;
	to->at = __sync_fetch_and_add(&to->processor->head, 1);
	index = (cpu << ring_shift) + (u32)(to->at & (slots - 1));
	to->record = bpf_map_lookup_elem(&rings, &index);
	return to->record != 0;
}

/* Publishes a record by its last word, which ends the name. */
INLINE void publish(struct reserved *to, u64 end_of_name, u64 kind)
{
	u64 last = end_of_name & ~(0xffull << 56);

	last |= (kind | (1 + ((to->at >> ring_shift) & 1))) << 56;
	asm volatile("" ::: "memory");
	if (weakly_ordered)
		__sync_lock_test_and_set((u64 *)&to->record->comm[8], last);
	else
		*(volatile u64 *)&to->record->comm[8] = last;
	if (to->filled >= (1ull << ring_shift) / 2 && !*(volatile u64 *)&to->processor->woken) {
		u64 nothing = 0;

		if (!bpf_ringbuf_output(&wake, &nothing, sizeof(nothing), BPF_RB_FORCE_WAKEUP))
			*(volatile u64 *)&to->processor->woken = 1;
	}
}

/* Writes the record of a bio into this processor's ring. */
INLINE void emit(struct entry *entry, u64 latency_ns)
{
	struct reserved to;
	struct entry *record;

	if (!reserve(&to, NESTED)) {
		COUNT(lost);
		return;
	}
	record = to.record;
	record->time_ns = entry->time_ns;
	record->key = latency_ns;
	record->queue = entry->queue;
	record->place = entry->place;
	record->owner = entry->owner;
	*(u64 *)&record->length = *(u64 *)&entry->length;
	*(u64 *)&record->comm[0] = *(u64 *)&entry->comm[0];
	publish(&to, *(u64 *)&entry->comm[8], WHOLE);
}

/*
 * What tells a request from all others: 42 bits of its pointer, which is that of a cache line, and 22
 * of when it was allocated, in units of 1,024 ns; 0 where the kernel does not take that time.
 */
INLINE u64 identity_of(struct request *rq)
{
	return key_of(rq) >> 6 << 22 | (rq->start_time_ns >> 10 & ((1 << 22) - 1));
}

INLINE volatile u64 *block_flag(void)
{
	u32 only = 0;

	return bpf_map_lookup_elem(&blocked, &only);
}

/* Tells that something happened to a request that has begun. `place` has the error, if there is one. */
INLINE void tell(struct request *rq, u64 place, u64 kind)
{
	struct reserved to;

	if (!reserve(&to, NESTED)) {
		volatile u64 *blocks = block_flag();

		COUNT(ends_lost);
		if (blocks)
			*blocks = 1;
		return;
	}
	to.record->time_ns = bpf_ktime_get_ns();
	to.record->key = identity_of(rq);
	to.record->place = place;
	publish(&to, 0, kind);
}

/* The index of a recorded device, or -1. */
INLINE int device_of(struct gendisk *disk)
{
	u32 number;

	if (!disk)
		return -1;
	number = ((u32)disk->major << 20) | (u32)disk->first_minor;
	if (device_count && device_numbers[0] == number)
		return 0;
#pragma clang loop unroll(disable)
	for (u32 i = 1; i < DEVICES; i++) {
		if (i >= device_count)
			break;
		if (device_numbers[i] == number)
			return i;
	}
	return -1;
}

INLINE u8 mode_of(int device)
{
	return device_modes[device & (DEVICES - 1)];
}

INLINE int in_flush_sequence(struct request *rq)
{
	u32 bit = 4;

	if (ENUM_EXISTS(enum rqf_flags, __RQF_FLUSH_SEQ))
		bit = ENUM_VALUE(enum rqf_flags, __RQF_FLUSH_SEQ);
	return (rq->rq_flags >> bit) & 1;
}

INLINE int has_flag(u32 opf, u32 bit)
{
	return (opf >> bit) & 1;
}

/*
 * The control group: the one that is charged for the bio. The kernel charges the nearest group
 * above that has the io controller; where the submitter's own group lies below that one, it is
 * the submitter's own.
 */
INLINE u64 cgroup_of(struct bio *bio, struct task_struct *task)
{
	struct cgroup *charged;
	u64 id, own;

	if (!FIELD_EXISTS(struct bio, bi_blkg) || !bio->bi_blkg)
		return 0;
	charged = bio->bi_blkg->blkcg->css.cgroup;
	id = charged->kn->id;
	/* Numbers of another hierarchy (version 1) mean other groups. */
	if (charged->root->hierarchy_id != 0)
		return id;
	own = task->cgroups->dfl_cgrp->kn->id;
	if (own != id && bpf_get_current_ancestor_cgroup_id(charged->level) == id)
		return own;
	return id;
}

INLINE u64 owner_of(u64 cgroup, u64 process)
{
	/* A number that does not fit is not known. */
	if (cgroup >> 40)
		cgroup = 0;
	return cgroup | process << 40;
}

SEC("tp_btf/block_bio_queue")
int bio_queued(u64 *ctx)
{
	struct bio *bio = (void *)ctx[0];
	int device = device_of(bio->bi_bdev->bd_disk), known;
	struct task_struct *task;
	struct entry *entry;
	u32 opf;
	u8 mode;

	if (device < 0)
		return 0;
	mode = mode_of(device);
	opf = bio->bi_opf;
	if (!(mode & QUEUE_LAYER)) {
		if (has_flag(opf, ENUM_VALUE(enum req_flag_bits, __REQ_PREFLUSH)))
			COUNT(flush_wishes);
		if (mode & WITHOUT_FUA && has_flag(opf, ENUM_VALUE(enum req_flag_bits, __REQ_FUA)))
			COUNT(flush_wishes);
	}
	entry = claim(key_of(bio), &known);
	if (!entry) {
		if (mode & QUEUE_LAYER)
			COUNT(untracked);
		return 0;
	}
	/* The bio that was here before is gone, and nobody saw it end. */
	if (known && mode_of(entry->place >> DEVICE_SHIFT) & QUEUE_LAYER) {
		entry->queue |= UNKNOWN_QUEUE;
		emit(entry, UNKNOWN_LATENCY);
	}
	entry->queue = (u64)bpf_get_smp_processor_id() << 48 | 1;
	entry->place = (bio->bi_iter.bi_sector & SECTOR_MASK) | (u64)device << DEVICE_SHIFT;
	task = bpf_get_current_task_btf();
	entry->owner = owner_of(cgroup_of(bio, task), (u32)task->tgid);
	entry->length = bio->bi_iter.bi_size;
	entry->opf = opf;
	*(u64 *)&entry->comm[0] = *(u64 *)&task->comm[0];
	*(u64 *)&entry->comm[8] = *(u64 *)&task->comm[8];
	entry->time_ns = bpf_ktime_get_ns();
	return 0;
}

/* Functions that are not inlined are verified once, and not at each call in a loop. */
#define FUNCTION __attribute__((noinline))

/* The slot of a bio that was queued, from 1; 0 if there is none. */
FUNCTION u32 slot_of_bio(u64 key)
{
	u32 start = start_of(key);

#pragma clang loop unroll(disable)
	for (u32 i = 0; i < WINDOW; i++) {
		u32 index = (start + i) & bio_mask;
		struct entry *entry = bpf_map_lookup_elem(&bios, &index);

		if (entry && entry->key == key)
			return index + 1;
	}
	return 0;
}

INLINE struct entry *find_bio(u64 key)
{
	u32 slot = slot_of_bio(key), index = slot - 1;

	return slot ? bpf_map_lookup_elem(&bios, &index) : 0;
}

INLINE u64 read_pointer(u64 address)
{
	u64 pointer = 0;

	bpf_probe_read_kernel(&pointer, sizeof(pointer), (void *)address);
	return pointer;
}

/* The bio that one was split from, if that was queued. */
INLINE struct entry *find_whole(u64 part)
{
	u64 whole = read_pointer(part + FIELD_OFFSET(struct bio, bi_private));

	return whole ? find_bio(key_of_address(whole)) : 0;
}

/* The same of a bio at hand, without a call. */
INLINE struct entry *find_single(struct bio *bio)
{
	struct entry *entry = find(key_of(bio));

	return entry ? entry : find_whole(address_of(bio));
}

/* A bio that was queued, or the one that it was split from. */
INLINE struct entry *find_bio_or_whole(u64 bio)
{
	struct entry *entry = find_bio(key_of_address(bio));

	return entry ? entry : find_whole(bio);
}

INLINE u64 next_bio(u64 bio)
{
	return read_pointer(bio + FIELD_OFFSET(struct bio, bi_next));
}

INLINE u64 first_bio(struct request *rq)
{
	return read_pointer((u64)&rq->bio);
}

/* A part of a bio is dealt with. */
INLINE int was_last_part(struct entry *entry)
{
	/* Then nobody else has a part any more. */
	if (*(volatile u32 *)&entry->queue == 1)
		return 1;
	return __sync_fetch_and_add((u32 *)&entry->queue, -1) == 1;
}

SEC("tp_btf/block_split")
int bio_split(u64 *ctx)
{
	struct bio *part = (void *)ctx[0];
	int device = device_of(part->bi_bdev->bd_disk);
	struct entry *whole;

	if (device < 0)
		return 0;
	if (!(mode_of(device) & QUEUE_LAYER))
		COUNT(splits);
	/* Stacking drivers tell the bio itself, which ends when all of it is done. */
	if (find_bio(key_of(part)))
		return 0;
	whole = find_whole(address_of(part));
	if (whole)
		__sync_fetch_and_add((u32 *)&whole->queue, 1);
	return 0;
}

/* Does not become a request, or is its own device's. */
SEC("tp_btf/block_bio_complete")
int bio_completed(u64 *ctx)
{
	struct bio *bio = (void *)ctx[1];
	struct entry *entry = find_bio(key_of(bio));

	if (!entry)
		return 0;
	if (mode_of(entry->place >> DEVICE_SHIFT) & QUEUE_LAYER) {
		if (bio->bi_status)
			entry->place = (entry->place & ~ERROR_MASK) | (u64)bio->bi_status << ERROR_SHIFT;
		entry->queue |= UNKNOWN_QUEUE;
		emit(entry, bpf_ktime_get_ns() - entry->time_ns);
	}
	release(entry);
	return 0;
}

SEC("tp_btf/block_bio_backmerge")
int bio_back_merged(u64 *ctx)
{
	struct bio *bio = (void *)ctx[0];
	int device = device_of(bio->bi_bdev->bd_disk);

	if (device >= 0 && !(mode_of(device) & QUEUE_LAYER))
		COUNT(merges);
	return 0;
}

SEC("tp_btf/block_bio_frontmerge")
int bio_front_merged(u64 *ctx)
{
	struct bio *bio = (void *)ctx[0];
	int device = device_of(bio->bi_bdev->bd_disk);

	if (device >= 0 && !(mode_of(device) & QUEUE_LAYER))
		COUNT(merges);
	return 0;
}

SEC("tp_btf/block_rq_merge")
int requests_merged(u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	int device = device_of(rq->q->disk);

	if (device >= 0 && !(mode_of(device) & QUEUE_LAYER))
		COUNT(merges);
	return 0;
}

/* Who asked for a request: of several, the first. */
struct asker {
	u64 queued_ns;
	u64 owner;
	u64 comm[2];
};

/* Takes over who asked, if that was earlier than what is known. */
INLINE void take_over(struct asker *asker, struct entry *bio)
{
	if (bio->time_ns >= asker->queued_ns)
		return;
	asker->queued_ns = bio->time_ns;
	asker->owner = bio->owner;
	asker->comm[0] = *(u64 *)&bio->comm[0];
	asker->comm[1] = *(u64 *)&bio->comm[8];
}

/* Takes over from what was queued, with which a request is then done unless `keep`. */
INLINE void join(struct asker *asker, struct entry *queued, u32 device, u32 keep)
{
	if (!queued)
		return;
	take_over(asker, queued);
	/* A stacking driver's bio is done later, and elsewhere. */
	if (!keep && ((queued->place >> DEVICE_SHIFT) & (DEVICES - 1)) == device &&
	    was_last_part(queued))
		release(queued);
}

FUNCTION int join_bio(struct asker *asker, u64 bio, u32 device, u32 keep)
{
	if (asker)
		join(asker, find_bio_or_whole(bio), device, keep);
	return 0;
}

/* Takes over from the bios of a request. Those of a flush sequence are needed longer. */
INLINE void join_bios(struct asker *asker, struct request *rq, int device)
{
	int keep = in_flush_sequence(rq);
	struct bio *single = rq->bio;
	u64 bio;

	if (single && !single->bi_next) {
		join(asker, find_single(single), device, keep);
		return;
	}
	bio = first_bio(rq);
#pragma clang loop unroll(disable)
	for (int i = 0; i < BIOS_PER_REQUEST && bio; i++) {
		join_bio(asker, bio, device, keep);
		bio = next_bio(bio);
	}
}

/* Takes over from whom a flush serves: the first that waits for it. */
INLINE void join_flush(struct asker *asker, struct request *rq)
{
	struct blk_flush_queue *waiting = rq->mq_hctx->fq;
	u32 offset = FIELD_OFFSET(struct request, queuelist);

	if (FIELD_EXISTS(struct request___before_6_5, flush.list))
		offset = FIELD_OFFSET(struct request___before_6_5, flush.list);
	/* One of the lists is served now; what waits in the other came later. */
#pragma clang loop unroll(full)
	for (int i = 0; i < 2; i++) {
		u64 list = address_of(waiting) +
			   FIELD_OFFSET(struct blk_flush_queue, flush_queue) +
			   i * 2 * sizeof(void *);
		u64 first = read_pointer(list);
		struct entry *queued;
		u64 bio;

		if (first == list)
			continue;
		bio = read_pointer(first - offset + FIELD_OFFSET(struct request, biotail));
		queued = bio ? find_bio(key_of_address(bio)) : 0;
		if (queued)
			take_over(asker, queued);
	}
}

SEC("tp_btf/block_rq_issue")
int request_issued(u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	int device = device_of(rq->q->disk);
	struct asker asker = { .queued_ns = ~0ull, .owner = owner_of(0, UNKNOWN_PROCESS) };
	u64 now_ns, place, queue_ns = UNKNOWN_QUEUE;
	volatile u64 *blocks = block_flag();
	struct reserved to;
	u32 opf, op, length = 0;

	if (device < 0 || mode_of(device) & QUEUE_LAYER)
		return 0;
	opf = rq->cmd_flags;
	op = opf & 0xff;
	if (op == REQ_OP_FLUSH) {
		COUNT(flushes);
		join_flush(&asker, rq);
	} else {
		join_bios(&asker, rq, device);
	}
	/* Room is kept for the ends of those that have begun. */
	if (!blocks || *blocks || !reserve(&to, 1ull << ring_shift >> 2)) {
		COUNT(lost);
		return 0;
	}
	place = (u64)device << DEVICE_SHIFT;
	/* A driver's own command has no place. */
	if (op < ENUM_VALUE(enum req_op, REQ_OP_DRV_IN)) {
		u64 sector = rq->__sector;

		if (sector != ~0ull)
			place |= sector & SECTOR_MASK;
		length = rq->__data_len;
	}
	now_ns = bpf_ktime_get_ns();
	if (asker.queued_ns < now_ns)
		queue_ns = (now_ns - asker.queued_ns) & UNKNOWN_QUEUE;
	to.record->time_ns = now_ns;
	to.record->key = identity_of(rq);
	to.record->queue = queue_ns | (u64)bpf_get_smp_processor_id() << 48;
	to.record->place = place;
	to.record->owner = asker.owner;
	to.record->length = length;
	to.record->opf = opf;
	*(u64 *)&to.record->comm[0] = asker.comm[0];
	publish(&to, asker.comm[1], BEGUN);
	return 0;
}

SEC("tp_btf/block_rq_requeue")
int request_requeued(u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	int device = device_of(rq->q->disk);

	if (device < 0 || mode_of(device) & QUEUE_LAYER)
		return 0;
	COUNT(requeues);
	tell(rq, 0, REQUEUED);
	return 0;
}

/* The outcome in its place: until Linux 5.15 an errno, then a number of the block layer's. */
INLINE u64 place_of_error(int error)
{
	if (error < 0)
		return ERRNO | (u64)(u8)-error << ERROR_SHIFT;
	return (u64)(u8)error << ERROR_SHIFT;
}

/* Keeps the outcome. */
INLINE void note_error(struct entry *entry, int error)
{
	if (error)
		entry->place = (entry->place & ~(ERROR_MASK | ERRNO)) | place_of_error(error);
}

FUNCTION int forget_bio(u64 bio)
{
	struct entry *queued = find_bio_or_whole(bio);

	if (queued && !(mode_of(queued->place >> DEVICE_SHIFT) & QUEUE_LAYER) && was_last_part(queued))
		release(queued);
	return 0;
}

/* At the device layer: a request that was not issued is done. */
INLINE void forget_bios(struct request *rq)
{
	u64 bio = first_bio(rq);

#pragma clang loop unroll(disable)
	for (int i = 0; i < BIOS_PER_REQUEST && bio; i++) {
		forget_bio(bio);
		bio = next_bio(bio);
	}
}

SEC("tp_btf/block_rq_complete")
int request_completed(u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	int error = ctx[1];
	u32 done = ctx[2];
	int device = device_of(rq->q->disk);

	if (device < 0 || mode_of(device) & QUEUE_LAYER)
		return 0;
	if (rq->state == MQ_RQ_IDLE) {
		if (!in_flush_sequence(rq))
			forget_bios(rq);
		return 0;
	}
	if (done < rq->__data_len) {
		if (error)
			tell(rq, place_of_error(error), PART_FAILED);
		return 0;
	}
	/* The end of a flush sequence: its steps were requests of their own. */
	tell(rq, place_of_error(error),
	     done || (rq->cmd_flags & 0xff) == REQ_OP_FLUSH ? DONE : MAY_BE_UNISSUED);
	/* If the next step is a flush, it is waited for from now on. */
	if (done && in_flush_sequence(rq) && rq->biotail) {
		struct entry *queued = find_bio(key_of(rq->biotail));

		if (queued && !(mode_of(queued->place >> DEVICE_SHIFT) & QUEUE_LAYER))
			queued->time_ns = bpf_ktime_get_ns();
	}
	return 0;
}

#define TOO_LONG (~0ull)

/* A bio, or a part of it, is done. */
INLINE void end_bio(struct entry *entry, int error)
{
	if (!entry) {
		COUNT(unpaired);
		return;
	}
	note_error(entry, error);
	if (was_last_part(entry)) {
		entry->queue |= UNKNOWN_QUEUE;
		emit(entry, bpf_ktime_get_ns() - entry->time_ns);
		release(entry);
	}
}

/* A bio is done if it is among what is done now. Returns what is left of that behind it. */
FUNCTION u64 complete_bio(u64 bio, int error, u64 left)
{
	u32 size = 0;

	bpf_probe_read_kernel(&size, sizeof(size),
			      (void *)(bio + FIELD_OFFSET(struct bio, bi_iter.bi_size)));
	if (size > left)
		return TOO_LONG;
	end_bio(find_bio_or_whole(bio), error);
	return left - size;
}

/* The queue layer: bios are done with the requests that they are in. */
SEC("tp_btf/block_rq_complete")
int bios_completed(u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	int error = ctx[1];
	u64 left = (u32)ctx[2], bio;
	struct bio *single;
	int device = device_of(rq->q->disk);

	/* The data of a flush sequence is no end: its last step is, which is empty. */
	if (device < 0 || !(mode_of(device) & QUEUE_LAYER) || in_flush_sequence(rq))
		return 0;
	single = rq->bio;
	if (single && !single->bi_next) {
		if (single->bi_iter.bi_size <= left)
			end_bio(find_single(single), error);
		return 0;
	}
	bio = first_bio(rq);
#pragma clang loop unroll(disable)
	for (int i = 0; i < BIOS_PER_REQUEST && bio; i++) {
		left = complete_bio(bio, error, left);
		if (left == TOO_LONG)
			break;
		bio = next_bio(bio);
	}
	return 0;
}
