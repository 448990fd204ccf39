// powerfail: workload = "{bin} serve {pool} {port}"
// powerfail: ready = "port"
// powerfail: client = "{bin} fill {port}"
// powerfail: client-recover = "{bin} verify {port}"
// powerfail: stop = "{bin} quit {port}"
// A server that stores numbers, and its client in the same program. A request is one letter, and so is the
// answer. The server stores a number before it counts it.
#include <arpa/inet.h>
#include <sys/socket.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t count;
	uint64_t numbers[8] PM_LINE;
};

static struct sockaddr_in address(const char *port)
{
	struct sockaddr_in address = {0};
	address.sin_family = AF_INET;
	address.sin_port = htons((uint16_t)atoi(port));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return address;
}

static void add(struct pool *pool)
{
	uint64_t count = pool->count;
	pool->numbers[count] = 1 + count;
	pm_persist(&pool->numbers[count]);
	pool->count = count + 1;
	pm_persist(&pool->count);
}

static char verify(const struct pool *pool)
{
	for (uint64_t i = 0; i < pool->count; i++)
		if (pool->numbers[i] != i + 1)
			return 'n';
	return 'y';
}

static int serve(struct pool *pool, const char *port)
{
	struct sockaddr_in own = address(port);
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	PM_REQUIRE(bind(listener, (struct sockaddr *)&own, sizeof(own)) == 0);
	PM_REQUIRE(listen(listener, 8) == 0);
	for (;;) {
		char request, answer = 'y';
		int client = accept(listener, NULL, NULL);
		PM_REQUIRE(client >= 0);
		while (read(client, &request, 1) == 1) {
			if (request == 'a' && pool->count < 8)
				add(pool);
			if (request == 'v')
				answer = verify(pool);
			PM_REQUIRE(write(client, &answer, 1) == 1);
			if (request == 'q')
				return 0;
		}
		close(client);
	}
}

static int ask(const char *port, const char *requests)
{
	struct sockaddr_in server = address(port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&server, sizeof(server)) != 0)
		return 1;
	for (; *requests; requests++) {
		char answer;
		if (write(fd, requests, 1) != 1 || read(fd, &answer, 1) != 1 || answer != 'y')
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	PM_REQUIRE(argc >= 3);
	if (strcmp(argv[1], "serve") == 0)
		return serve(pm_open(argv[2], 4096), argv[3]);
	if (strcmp(argv[1], "fill") == 0)
		return ask(argv[2], "aaa");
	if (strcmp(argv[1], "verify") == 0)
		return ask(argv[2], "v");
	return ask(argv[2], strcmp(argv[1], "quit") == 0 ? "q" : "p");
}
