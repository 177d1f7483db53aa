/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory near the GPU, by system calls: no library is needed for three of them. All of it is a
 * wish: a kernel without nodes, or a container that may not ask, changes nothing. Any thread.
 */
#include "cuda_device.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/mempolicy.h, which not every machine has */
#define POLICY_PREFERRED 1

#define WORD_BITS (sizeof(unsigned long) * CHAR_BIT)
#define MAX_NODES (sizeof(((struct kvt__cuda_policy *)0)->nodes) * CHAR_BIT)

int kvt__cuda_node_of(const char *pci_id)
{
	char path[96], text[16] = "", *end;
	FILE *file;
	long node;
	int used = snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.20s/numa_node", pci_id);

	for (int i = 0; i < used && i < (int)sizeof(path); i++)
		path[i] = (char)tolower((unsigned char)path[i]);
	file = fopen(path, "re");
	if (file == NULL)
		return -1;
	if (fgets(text, sizeof(text), file) == NULL)
		text[0] = '\0';
	(void)fclose(file);
	node = strtol(text, &end, 10);
	return end == text || node < 0 || node >= (long)MAX_NODES ? -1 : (int)node;
}

static void cuda_node_mask(int node, unsigned long *mask)
{
	memset(mask, 0, MAX_NODES / CHAR_BIT);
	mask[(size_t)node / WORD_BITS] = 1ul << ((size_t)node % WORD_BITS);
}

void kvt__cuda_prefer_node(int node, struct kvt__cuda_policy *old)
{
	unsigned long mask[MAX_NODES / WORD_BITS];

	memset(old, 0, sizeof(*old));
	if (node < 0 || syscall(SYS_get_mempolicy, &old->mode, old->nodes, MAX_NODES, NULL, 0) != 0)
		return;
	cuda_node_mask(node, mask);
	old->changed = syscall(SYS_set_mempolicy, POLICY_PREFERRED, mask, MAX_NODES) == 0;
}

void kvt__cuda_restore_policy(const struct kvt__cuda_policy *old)
{
	if (old->changed)
		(void)syscall(SYS_set_mempolicy, old->mode, old->nodes, MAX_NODES);
}

void kvt__cuda_bind(void *memory, uint64_t bytes, int node)
{
	unsigned long mask[MAX_NODES / WORD_BITS];

	if (node < 0)
		return;
	cuda_node_mask(node, mask);
	(void)syscall(SYS_mbind, memory, (unsigned long)bytes, POLICY_PREFERRED, mask, MAX_NODES,
		      0);
}
