/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the programs use of the kernel: its types, as far as they read them, and its helpers.
 *
 * Of each type only the members that are read stand here. The loader replaces their offsets by those
 * of the running kernel, from its type information (BTF); so neither a kernel's headers nor a
 * vmlinux.h are needed to build this, and one object fits all kernels.
 */
#ifndef IOTAPE_KERNEL_H
#define IOTAPE_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

/* Offsets and values of the running kernel. */
#define FIELD_OFFSET(type, field) __builtin_preserve_field_info(((type *)0)->field, 0)
#define FIELD_EXISTS(type, field) __builtin_preserve_field_info(((type *)0)->field, 2)
#define ENUM_EXISTS(type, value) __builtin_preserve_enum_value(*(type *)value, 0)
#define ENUM_VALUE(type, value) __builtin_preserve_enum_value(*(type *)value, 1)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next;
};

struct kernfs_node {
	u64 id;
};

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_root *root;
	int level;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_struct {
	int tgid;
	char comm[16];
	/* With CONFIG_CGROUPS. */
	struct css_set *cgroups;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

struct gendisk {
	int major;
	int first_minor;
};

struct block_device {
	struct gendisk *bd_disk;
};

struct bvec_iter {
	u64 bi_sector;
	unsigned int bi_size;
};

struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	unsigned int bi_opf;
	u8 bi_status;
	struct bvec_iter bi_iter;
	void *bi_private;
	/* With CONFIG_BLK_CGROUP. */
	struct blkcg_gq *bi_blkg;
};

struct request_queue {
	struct gendisk *disk;
};

struct blk_flush_queue {
	struct list_head flush_queue[2];
};

struct blk_mq_hw_ctx {
	struct blk_flush_queue *fq;
};

enum mq_rq_state {
	MQ_RQ_IDLE = 0,
};

struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	unsigned int cmd_flags;
	unsigned int rq_flags;
	unsigned int __data_len;
	u64 __sector;
	u64 start_time_ns;
	enum mq_rq_state state;
	struct bio *bio;
	struct bio *biotail;
	struct list_head queuelist;
};

/* Before Linux 6.5. */
struct request___before_6_5 {
	struct {
		struct list_head list;
	} flush;
};

#pragma clang attribute pop

enum req_op {
	REQ_OP_FLUSH = 2,
	REQ_OP_DRV_IN = 34,
};

enum req_flag_bits {
	__REQ_FUA = 17,
	__REQ_PREFLUSH = 18,
};

/* Since Linux 6.11; before, bit 4. */
enum rqf_flags {
	__RQF_FLUSH_SEQ = 1,
};

/* include/uapi/linux/bpf.h */
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_F_MMAPABLE 1024
#define BPF_RB_FORCE_WAKEUP 2

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static u64 (*bpf_get_current_ancestor_cgroup_id)(int level) = (void *)123;
static long (*bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;

/* Members of a map's definition, as the loader reads them. */
#define NUMBER(name, value) int (*name)[value]
#define TYPE(name, type) typeof(type) *name

#endif
