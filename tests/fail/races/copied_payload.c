// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// A payload is copied and flushed together with the flag. The C library copies and compares, called from our lines.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

enum { PAYLOAD_BYTES = 100 };

struct pool {
	uint64_t is_valid;
	char payload[PAYLOAD_BYTES] PM_LINE;
};

static volatile size_t payload_len = PAYLOAD_BYTES;

int main(int argc, char **argv)
{
	char payload[PAYLOAD_BYTES];
	struct pool *pool = pm_open(argv[1], 4096);
	memset(payload, 'x', sizeof(payload));
	powerfail_commit_range(&pool->is_valid, sizeof(pool->is_valid), pool->payload, PAYLOAD_BYTES);
	if (pm_mode(argc, argv, "recover"))
		return pool->is_valid && memcmp(pool->payload, payload, payload_len) != 0;
	memcpy(pool->payload, payload, payload_len); // expect: PF0701
	pm_flush_range(pool->payload, PAYLOAD_BYTES);
	pool->is_valid = 1;
	pm_flush(&pool->is_valid);
	pm_fence();
	return 0;
}
