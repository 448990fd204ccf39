/* Makes the C library allocate, and allocates nothing itself. */
#define _GNU_SOURCE
#include <dirent.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int compare(const void *one, const void *two)
{
	return *(const int *)one - *(const int *)two;
}

static void *work(void *argument)
{
	char *line = NULL;
	if (asprintf(&line, "thread %p", argument) < 0)
		return NULL;
	puts(line);
	free(line);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	setlocale(LC_ALL, "");
	static int numbers[10000];
	for (int i = 0; i < 10000; i++)
		numbers[i] = i * 7919 % 10007;
	qsort(numbers, 10000, sizeof *numbers, compare);
	FILE *file = fopen(argv[1], "w+");
	if (!file)
		return 3;
	for (int i = 0; i < 1000; i++)
		fprintf(file, "%d %f %s\n", numbers[i], i / 3.0, "line");
	rewind(file);
	char *line = NULL;
	size_t size = 0;
	int lines = 0;
	while (getline(&line, &size, file) > 0)
		lines++;
	free(line);
	fclose(file);
	DIR *directory = opendir("/");
	while (readdir(directory))
		continue;
	closedir(directory);
	char *path = realpath("/proc/self/exe", NULL);
	free(path);
	setenv("NAME", "value", 1);
	time_t now = 0;
	localtime(&now);
	pthread_t thread;
	pthread_create(&thread, NULL, work, NULL);
	pthread_join(thread, NULL);
	printf("%d lines\n", lines);
	return lines != 1000;
}
