// powerfail: recover = "{bin} {pool} recover"
// A session is flushed before it is counted.
#include "../../programs/pm.h"

struct session {
	uint64_t user;
	uint64_t token;
	uint64_t rights;
	uint64_t expires;
};

struct table {
	uint64_t count;
	struct session sessions[4] PM_LINE;
};

static void log_in(struct table *table, uint64_t user)
{
	struct session *session = &table->sessions[2 * table->count];
	session->user = user;
	session->rights = 7;
	session->expires = 900 + user;
	session->token = 31 * user;
	pm_persist(session);
	table->count++;
	pm_persist(&table->count);
}

int main(int argc, char **argv)
{
	struct table *table = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		for (uint64_t i = 0; i < table->count; i++)
			if (!table->sessions[2 * i].user || table->sessions[2 * i].token != 31 * table->sessions[2 * i].user)
				return 1;
		return 0;
	}
	log_in(table, 3);
	log_in(table, 4);
	return 0;
}
