// A tool for workloads in guests, linked statically.
//
//   tool dm create NAME LEN TYPE PARAMETERS   a device of the device mapper, of LEN sectors
//   tool dm remove NAME
//   tool blocks DEVICE COUNT                  a line for each block of 4096 bytes: its number and a checksum
//   tool map FILE OFFSET TEXT                 stores TEXT through a mapping of FILE, and calls msync
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK 4096

static int fail(const char *what)
{
	perror(what);
	return 1;
}

static struct dm_ioctl *request(const char *name, char *buffer, size_t len)
{
	struct dm_ioctl *head = (struct dm_ioctl *)buffer;

	memset(buffer, 0, len);
	head->version[0] = DM_VERSION_MAJOR;
	head->data_size = len;
	head->data_start = sizeof(*head);
	strncpy(head->name, name, sizeof(head->name) - 1);
	return head;
}

static int device_mapper(int count, char **words)
{
	static char buffer[BLOCK];
	int control = open("/dev/mapper/control", O_RDWR);
	struct dm_ioctl *head;
	struct dm_target_spec *target;

	if (control < 0)
		return fail("/dev/mapper/control");
	if (count == 2 && !strcmp(words[0], "remove")) {
		request(words[1], buffer, sizeof(buffer));
		return ioctl(control, DM_DEV_REMOVE, buffer) ? fail("DM_DEV_REMOVE") : 0;
	}
	if (count != 5 || strcmp(words[0], "create"))
		return 2;
	request(words[1], buffer, sizeof(buffer));
	if (ioctl(control, DM_DEV_CREATE, buffer))
		return fail("DM_DEV_CREATE");
	head = request(words[1], buffer, sizeof(buffer));
	head->target_count = 1;
	target = (struct dm_target_spec *)(head + 1);
	target->length = strtoull(words[2], NULL, 10);
	strncpy(target->target_type, words[3], sizeof(target->target_type) - 1);
	strcpy((char *)(target + 1), words[4]);
	if (ioctl(control, DM_TABLE_LOAD, buffer))
		return fail("DM_TABLE_LOAD");
	request(words[1], buffer, sizeof(buffer));
	return ioctl(control, DM_DEV_SUSPEND, buffer) ? fail("DM_DEV_SUSPEND") : 0;
}

static int blocks(const char *device, int count)
{
	static unsigned char block[BLOCK];
	int file = open(device, O_RDONLY);

	if (file < 0)
		return fail(device);
	for (int number = 0; number < count; number++) {
		uint64_t sum = 0xcbf29ce484222325;

		if (pread(file, block, BLOCK, (off_t)number * BLOCK) != BLOCK)
			return fail(device);
		for (int i = 0; i < BLOCK; i++)
			sum = (sum ^ block[i]) * 0x100000001b3;
		printf("block-%d %016llx\n", number, (unsigned long long)sum);
	}
	return 0;
}

static int map(const char *path, long offset, const char *text)
{
	long page = offset / BLOCK * BLOCK;
	int file = open(path, O_RDWR);
	char *memory;

	if (file < 0)
		return fail(path);
	memory = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, file, page);
	if (memory == MAP_FAILED)
		return fail("mmap");
	memcpy(memory + offset - page, text, strlen(text));
	return msync(memory, BLOCK, MS_SYNC) ? fail("msync") : 0;
}

int main(int count, char **words)
{
	if (count >= 4 && !strcmp(words[1], "dm"))
		return device_mapper(count - 2, words + 2);
	if (count == 4 && !strcmp(words[1], "blocks"))
		return blocks(words[2], atoi(words[3]));
	if (count == 5 && !strcmp(words[1], "map"))
		return map(words[2], atol(words[3]), words[4]);
	return 2;
}
