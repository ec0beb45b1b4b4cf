// What the memory model uses of QEMU's plugin interface, version 1 (QEMU's documentation, "QEMU TCG Plugins").
// Debian packages no header of it.
#ifndef QEMU_ABI_H
#define QEMU_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

enum { QEMU_PLUGIN_ABI = 1, QEMU_CB_NO_REGS = 0, QEMU_MEM_RW = 3 };

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
struct qemu_info_t;

typedef void (*qemu_translated_t)(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef void (*qemu_accessed_t)(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, qemu_translated_t callback);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction, qemu_accessed_t callback, int flags,
                                             int kinds, void *data);
extern bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
extern struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address);
extern bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *address);
extern uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *address);

#endif
