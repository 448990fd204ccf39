/*
 * The programs that a reader of the guides has, by the name under which it is started.
 *
 * `store`, `app`, `list` and `my-program` keep a pool or a directory at the first argument that is a path, with the bug of
 * examples/counter.c or examples/settings.c. `server` does so for each request, and `load` and `verify` make one.
 * `index-test` forgets a flush in persistent memory that comes from malloc. `list` has annotations. `kv` executes the lines of
 * its standard input. `--lock` is a file that must be writable.
 */
#define main store_main
#include "counter.c"
#undef main
#define main app_main
#include "settings.c"
#undef main

#include <arpa/inet.h>
#include "powerfail.h"
#include <stdlib.h>
#include <sys/socket.h>

static const char *value_of(int argc, char **argv, const char *flag)
{
	for (int i = 1; i + 1 < argc; i++)
		if (strcmp(argv[i], flag) == 0)
			return argv[i + 1];
	return NULL;
}

static int is_path(const char *text)
{
	return strchr(text, '/') != NULL || strncmp(text, "data", 4) == 0;
}

static int is_pool(const char *path)
{
	struct stat status;
	return stat(path, &status) == 0 ? S_ISREG(status.st_mode) : strstr(path, "pool") != NULL;
}

/* Stores the record, or the settings. */
static int keep(char *path)
{
	char *arguments[] = {"", path, NULL};
	return is_pool(path) ? store_main(2, arguments) : app_main(2, arguments);
}

static struct pool *open_pool(const char *path)
{
	int fd = open(path, O_RDWR);
	void *pool = fd < 0 ? MAP_FAILED : mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return pool == MAP_FAILED ? NULL : pool;
}

static int list(const char *path)
{
	struct pool *pool = open_pool(path);
	if (pool != NULL && pool->valid_bytes != 0)
		puts(pool->record);
	return 0;
}

/* Stores the record as an operation between two marks. What comes then is not checked. */
static int insert(char *path)
{
	powerfail_mark(17, "insert", 6);
	powerfail_operation_begin(17);
	int status = keep(path);
	powerfail_operation_end(17);
	powerfail_mark(18, "insert", 6);
	struct pool *pool = open_pool(path);
	if (pool == NULL)
		return 1;
	powerfail_skip_failure_begin(1);
	powerfail_skip_detection_begin(1, POWERFAIL_BEFORE);
	char *other = (char *)pool + 2 * 64;
	*other = 1;
	persist(other);
	powerfail_skip_detection_end(1, POWERFAIL_BEFORE);
	powerfail_skip_failure_end(1);
	return status;
}

/* Each line stores the record once more, if it begins with put. */
static int kv(char *path)
{
	char line[64];
	if (keep(path) != 0)
		return 1;
	struct pool *pool = open_pool(path);
	while (pool != NULL && fgets(line, sizeof(line), stdin) != NULL)
		if (strncmp(line, "put ", 4) == 0)
			persist(&pool->record[atoi(line + 4) & 63]);
	return 0;
}

static struct sockaddr_in address_of(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	address.sin_port = htons(atoi(value_of(argc, argv, "--port")));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return address;
}

static int serve(int argc, char **argv)
{
	const char *pool = value_of(argc, argv, "--pool");
	const char *path = pool != NULL ? pool : value_of(argc, argv, "--dir");
	struct sockaddr_in address = address_of(argc, argv);
	int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(listener, (void *)&address, sizeof(address)) != 0 || listen(listener, 8) != 0)
		return 2;
	for (;;) {
		char request, reply;
		int client = accept(listener, NULL, NULL);
		if (client >= 0 && read(client, &request, 1) == 1) {
			reply = '0' + keep((char *)path);
			if (write(client, &reply, 1) != 1)
				return 2;
		}
		close(client);
	}
}

static int ask(int argc, char **argv)
{
	struct sockaddr_in address = address_of(argc, argv);
	int server = socket(AF_INET, SOCK_STREAM, 0);
	char reply;
	if (connect(server, (void *)&address, sizeof(address)) != 0 || write(server, "r", 1) != 1)
		return 2;
	return read(server, &reply, 1) == 1 && reply == '0' ? 0 : 1;
}

static int index_test(void)
{
	struct pool **root = (struct pool **)powerfail_root(0);
	if (*root == NULL) {
		struct pool *pool = malloc(sizeof(*pool));
		strcpy(pool->record, TEXT);
		/* persist(pool->record) is missing here. */
		*root = pool;
		persist(root);
	}
	return strcmp((*root)->record, TEXT) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	char *name = strrchr(argv[0], '/');
	char *path = "data";
	int repeats = 0, is_list = 0;
	name = name == NULL ? argv[0] : name + 1;
	if (strcmp(name, "server") == 0)
		return serve(argc, argv);
	if (strcmp(name, "load") == 0 || strcmp(name, "verify") == 0)
		return ask(argc, argv);
	if (strcmp(name, "index-test") == 0)
		return index_test();
	const char *lock = value_of(argc, argv, "--lock");
	if (lock != NULL && open(lock, O_RDWR | O_CREAT, 0644) < 0)
		return 1;
	for (int i = argc - 1; i > 0; i--) {
		if (argv[i] == lock)
			continue;
		path = is_path(argv[i]) ? argv[i] : path;
		repeats += atoi(argv[i]) > 0 ? atoi(argv[i]) : 0;
		is_list |= strcmp(argv[i], "--list") == 0 || strcmp(argv[i], "print") == 0;
	}
	if (is_list)
		return list(path);
	if (strcmp(name, "kv") == 0)
		return kv(path);
	if ((strcmp(name, "list") == 0 ? insert(path) : keep(path)) != 0)
		return 1;
	struct pool *pool = repeats > 0 ? open_pool(path) : NULL;
	for (int i = 0; pool != NULL && i < repeats; i++)
		persist(&pool->valid_bytes);
	puts("added " TEXT);
	return 0;
}
