/* Reads the first word of each page of another process's memory, filled by debugged.c, as debuggers and tools do.
   Arguments: process, address, MiB, and how: "proc" (/proc/PID/mem), "ptrace" (PTRACE_PEEKDATA) or "vm"
   (process_vm_readv). Prints how many pages were right, refused with an error, and wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORD 0x5B11000000000000u
#define PAGE 4096

static int memory;

static int peek(pid_t process, const char *how, unsigned long address, uint64_t *word)
{
	if (!strcmp(how, "proc"))
		return pread(memory, word, 8, (off_t)address) == 8;
	if (!strcmp(how, "ptrace")) {
		errno = 0;
		*word = (uint64_t)ptrace(PTRACE_PEEKDATA, process, (void *)address, 0);
		return errno == 0;
	}
	struct iovec ours = {word, 8}, theirs = {(void *)address, 8};
	return process_vm_readv(process, &ours, 1, &theirs, 1, 0) == 8;
}

int main(int count, char **arguments)
{
	if (count != 5)
		return 2;
	pid_t process = atoi(arguments[1]);
	unsigned long start = strtoul(arguments[2], NULL, 10);
	size_t pages = (size_t)atoi(arguments[3]) << 8, right = 0, refused = 0, wrong = 0;
	const char *how = arguments[4];
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/mem", process);
	memory = open(path, O_RDONLY);
	if (memory < 0)
		return 1;
	if (!strcmp(how, "ptrace") &&
	    (ptrace(PTRACE_ATTACH, process, 0, 0) || waitpid(process, NULL, __WALL) != process))
		return 1;
	for (size_t page = 0; page < pages; page++) {
		uint64_t word = 0;
		if (!peek(process, how, start + page * PAGE, &word))
			refused++;
		else if (word == WORD + page * PAGE / 8)
			right++;
		else
			wrong++;
	}
	if (!strcmp(how, "ptrace"))
		ptrace(PTRACE_DETACH, process, 0, 0);
	printf("%zu %zu %zu\n", right, refused, wrong);
	return 0;
}
