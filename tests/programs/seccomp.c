// Works on under a filter that allows hardly any system call: none of the pager's own. Any other ends it.
// usage: seccomp MIB [tsync]
#include "pattern.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(write), ALLOW(exit_group), ALLOW(mmap), ALLOW(munmap), ALLOW(brk), ALLOW(madvise), ALLOW(getrandom),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};

static void work(size_t pages) {
    char *base = map_pages(pages);
    pages_check(base, pages, 1, 0, "new memory");
    pages_write(base, pages, 1, 1);
    pages_check(base, pages, 1, 1, "memory");
    NEED(madvise(base, pages / 2 * PAGE_BYTES, MADV_DONTNEED) == 0);
    pages_check(base, pages / 2, 1, 0, "what was discarded");
    NEED(munmap(base, pages * PAGE_BYTES) == 0);
    char *blocks[64];
    for (int i = 0; i < 64; i++) NEED((blocks[i] = malloc(100000)) != NULL);
    for (int i = 0; i < 64; i++) free(blocks[i]);
}

int main(int count, char **arguments) {
    size_t pages = pages_of_mib(count > 1 ? arguments[1] : "32");
    int flags = count > 2 && strcmp(arguments[2], "tsync") == 0 ? SECCOMP_FILTER_FLAG_TSYNC : 0;
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    char *before = map_pages(pages);
    pages_write(before, pages, 2, 1);
    NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    NEED(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0);
    work(pages);
    pages_check(before, pages, 2, 1, "memory from before the filter");
    static const char said[] = "whole\n";
    _exit(write(1, said, sizeof said - 1) == sizeof said - 1 ? 0 : 1);
}
