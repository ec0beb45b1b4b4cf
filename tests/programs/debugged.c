/* Fills memory, says where it lies, and waits for a look at it from outside. Arguments: MiB, and what it does after
   its standard input has ended: "exit" or "abort". Word i of the memory holds WORD + i. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD 0x5B11000000000000u

int main(int count, char **arguments)
{
	if (count != 3)
		return 2;
	size_t words = (size_t)atoi(arguments[1]) << 17;
	uint64_t *memory = aligned_alloc(4096, words * 8);
	if (!memory)
		return 1;
	for (size_t i = 0; i < words; i++)
		memory[i] = WORD + i;
	printf("%lu\n", (unsigned long)memory);
	fflush(stdout);
	while (getchar() != EOF)
		;
	if (!strcmp(arguments[2], "abort"))
		abort();
	return 0;
}
