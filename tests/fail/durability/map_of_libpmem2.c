// powerfail: needs = "-lpmem2"
// powerfail: recover = "{bin} {pool} recover"
// libpmem2 reserves addresses with memory that can be read, and maps its file there.
#include <fcntl.h>
#include <libpmem2.h>

#include "../../programs/pm.h"

static struct pmem2_map *map_of(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0666);
	struct pmem2_config *config;
	struct pmem2_source *source;
	struct pmem2_map *map;
	if (fd < 0 || ftruncate(fd, 8192) != 0 || pmem2_config_new(&config) != 0 ||
	    pmem2_config_set_required_store_granularity(config, PMEM2_GRANULARITY_PAGE) != 0 ||
	    pmem2_source_from_fd(&source, fd) != 0 || pmem2_map_new(&map, config, source) != 0)
		_exit(100);
	return map;
}

int main(int argc, char **argv)
{
	struct pmem2_map *map = map_of(argv[1]);
	char *pool = pmem2_map_get_address(map);
	pmem2_persist_fn persist = pmem2_get_persist_fn(map);
	char *is_valid = pool, *value = pool + 4096;
	if (pm_mode(argc, argv, "recover"))
		return *is_valid && *value != 7;
	*value = 7; // expect: PF0101
	*is_valid = 1;
	persist(is_valid, 1);
	_exit(0);
}
