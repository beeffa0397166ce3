/* Makes calls on sockets and says what comes of each, which must be the same whether the connections and
 * datagrams are carried or not. Arguments: the ports on 127.0.0.1 of an echo of TCP, of nobody, and of two
 * echoes of UDP; with a fifth it is a child that speaks with the first. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/udp.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103 /* linux/udp.h */
#endif
#define WAIT_MS 60000

extern char **environ;
static struct sockaddr_in host, nobody, one, two;

static struct sockaddr_in at(const char *port)
{
	struct sockaddr_in to = { AF_INET, htons(atoi(port)) };
	inet_aton("127.0.0.1", &to.sin_addr);
	return to;
}

static void say(const char *what, long result)
{
	if (result < 0)
		printf("%s: errno %d\n", what, errno);
	else
		printf("%s: %ld\n", what, result);
	fflush(stdout);
}

static int connects(int s, struct sockaddr_in *to)
{
	return connect(s, (void *)to, sizeof *to);
}

static int parts(int s)
{
	struct sockaddr none = { AF_UNSPEC };
	return connect(s, &none, sizeof none);
}

static void waits(int s, short events)
{
	struct pollfd ready = { s, events, 0 };
	say("poll", poll(&ready, 1, WAIT_MS));
}

static int last_error(int s)
{
	int error = -1;
	socklen_t len = sizeof error;
	getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &len);
	return error;
}

/* Whether what is said comes back. */
static int echoes(int s)
{
	char heard[5];
	return send(s, "hello", 5, MSG_NOSIGNAL) == 5 && recv(s, heard, 5, MSG_WAITALL) == 5 &&
	       !memcmp(heard, "hello", 5);
}

static int stream(int flags)
{
	return socket(AF_INET, SOCK_STREAM | flags, 0);
}

static int connected(void)
{
	int s = stream(0);
	say("connect", connects(s, &host));
	return s;
}

static void ways_to_connect(void)
{
	int s = connected();
	say("elsewhere", connects(s, &nobody));
	say("echo", echoes(s));
	say("part", parts(s));
	say("anew", connects(s, &host));
	say("echo", echoes(s));
	s = stream(0);
	say("refused", connects(s, &nobody));
	say("then", connects(s, &host));
	say("echo", echoes(s));
	s = stream(SOCK_NONBLOCK);
	say("refused later", connects(s, &nobody));
	waits(s, POLLOUT);
	say("why", last_error(s));
	say("told once", last_error(s));
	s = stream(SOCK_NONBLOCK);
	say("refused later", connects(s, &nobody));
	waits(s, POLLOUT);
	/* Whoever reads at once, without SO_ERROR, may hear ECONNRESET of the refusal (docs/run.md). */
	ssize_t len = recv(s, &(char){ 0 }, 1, 0);
	say("not read", len < 0 && (errno == ECONNREFUSED || errno == ECONNRESET));
	s = stream(0);
	struct timeval limit = { WAIT_MS / 1000 };
	setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	say("in time", connects(s, &host));
	struct sockaddr_in6 mapped = { AF_INET6, host.sin_port };
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
	s = socket(AF_INET6, SOCK_STREAM, 0);
	say("mapped", connect(s, (void *)&mapped, sizeof mapped));
	say("echo", echoes(s));
	say("fault", connect(stream(0), (void *)8, sizeof host));
	say("short", connect(stream(0), (void *)&host, 4));
	say("negative", connect(stream(0), (void *)&host, -1));
	say("other family", connect(stream(0), (void *)&mapped, sizeof mapped));
	say("no file", connects(999, &host));
	say("no socket", connects(1, &host));
	s = stream(0);
	listen(s, 1);
	say("listener", connects(s, &host));
}

static void names_of_peers(void)
{
	int s = connected();
	struct sockaddr_in peer = { 0 };
	socklen_t len = sizeof peer;
	say("peer", getpeername(s, (void *)&peer, &len));
	say("is it", len == sizeof peer && !memcmp(&peer, &host, len));
	len = 4;
	say("short", getpeername(s, (void *)&peer, &len));
	say("whole length", len);
	len = -1;
	say("negative", getpeername(s, (void *)&peer, &len));
	len = sizeof peer;
	say("nowhere", getpeername(s, NULL, &len));
	say("nobody", getpeername(stream(0), (void *)&peer, &len));
}

static void ways_to_speak(const char *self)
{
	int s = connected();
	char heard[2000];
	struct timeval limit = { 0, 100000 };
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	say("in time", recv(s, heard, 1, 0));
	limit.tv_sec = WAIT_MS / 1000;
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	struct iovec part = { "hello", 5 }, into = { heard, sizeof heard };
	struct mmsghdr out[2] = { { .msg_hdr = { .msg_iov = &part, .msg_iovlen = 1 } } };
	out[1] = out[0];
	say("sendmmsg", sendmmsg(s, out, 2, 0));
	say("back", recv(s, heard, 10, MSG_WAITALL));
	send(s, "hello", 5, 0);
	struct sockaddr_in from;
	struct mmsghdr in = { .msg_hdr = { &from, sizeof from, &into, 1 } };
	waits(s, POLLIN);
	say("recvmmsg", recvmmsg(s, &in, 1, 0, NULL));
	say("without a name", in.msg_hdr.msg_namelen);
	int file = open(self, O_RDONLY), pipes[2];
	say("sendfile", sendfile(s, file, NULL, 1000));
	say("back", recv(s, heard, 1000, MSG_WAITALL));
	if (pipe(pipes) || write(pipes[1], "hello", 5) != 5)
		abort();
	say("splice", splice(pipes[0], NULL, s, NULL, 5, 0));
	waits(s, POLLIN);
	say("splice back", splice(s, NULL, pipes[1], NULL, 5, 0));
	say("shutdown", shutdown(s, SHUT_WR));
	say("no more", send(s, "x", 1, MSG_NOSIGNAL));
	say("end", recv(s, heard, 1, 0));
}

static void children(char **args)
{
	char *again[] = { args[0], args[1], args[2], args[3], args[4], "child", NULL };
	int status = -1;
	pid_t child;
	say("posix_spawn", posix_spawn(&child, args[0], NULL, NULL, again, environ));
	waitpid(child, &status, 0);
	say("spoke", status == 0);
	if (!(child = vfork())) {
		execv(args[0], again);
		_exit(9);
	}
	waitpid(child, &status, 0);
	say("vfork", status == 0);
	int s = dup2(connected(), 100);
	if (!(child = fork()))
		_exit(!echoes(s));
	waitpid(child, &status, 0);
	say("fork", status == 0);
}

static int asker(void)
{
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	struct timeval limit = { WAIT_MS / 1000 };
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	return s;
}

static long hears(int s, struct sockaddr_in *host)
{
	char heard[2000];
	struct sockaddr_in from;
	socklen_t len = sizeof from;
	long n = recvfrom(s, heard, sizeof heard, 0, (void *)&from, &len);
	return n >= 0 && !memcmp(&from, host, sizeof from) ? n : -1;
}

static void datagrams(void)
{
	int s = asker();
	struct mmsghdr out[4] = { 0 }, in[4] = { 0 };
	struct iovec parts_out[4], parts_in[4];
	struct sockaddr_in from[4];
	char heard[4][100];
	for (int i = 0; i < 4; i++) {
		parts_out[i] = (struct iovec){ "0123", i + 1 };
		out[i].msg_hdr = (struct msghdr){ i & 1 ? &two : &one, sizeof one, &parts_out[i], 1 };
		parts_in[i] = (struct iovec){ heard[i], sizeof heard[i] };
		in[i].msg_hdr = (struct msghdr){ &from[i], sizeof from[i], &parts_in[i], 1 };
	}
	say("sendmmsg", sendmmsg(s, out, 4, 0));
	say("of the last", out[3].msg_len);
	int got = 0, right = 0;
	while (got < 4) {
		int n = recvmmsg(s, in + got, 4 - got, MSG_WAITFORONE, NULL);
		if (n <= 0)
			break;
		got += n;
	}
	for (int i = 0; i < got; i++)
		right += !memcmp(&from[i], in[i].msg_len & 1 ? &one : &two, sizeof one);
	say("recvmmsg", got);
	say("from whom they are", right);
	say("no more", recvmmsg(s, in, 4, MSG_DONTWAIT, NULL));
	say("empty", sendto(s, "", 0, 0, (void *)&one, sizeof one));
	say("back", hears(s, &one));
	/* One message that the kernel sends as three (linux/udp.h). */
	char control[CMSG_SPACE(sizeof(short))] = { 0 }, long_one[250] = { 0 };
	struct iovec part = { long_one, sizeof long_one };
	struct msghdr message = { &two, sizeof two, &part, 1, control, sizeof control };
	struct cmsghdr *beside = CMSG_FIRSTHDR(&message);
	*beside = (struct cmsghdr){ CMSG_LEN(sizeof(short)), SOL_UDP, UDP_SEGMENT };
	*(short *)CMSG_DATA(beside) = 100;
	say("in segments", sendmsg(s, &message, 0));
	int sum = 0;
	for (int i = 0; i < 3; i++)
		sum += hears(s, &two);
	say("back", sum);
	say("connect", connects(s, &one));
	send(s, "x", 1, 0);
	say("back", hears(s, &one));
	say("part", parts(s));
	say("to whom", send(s, "x", 1, 0));
	sendto(s, "xy", 2, 0, (void *)&two, sizeof two);
	say("back", hears(s, &two));
	say("too long", sendto(s, long_one, 70000, 0, (void *)&one, sizeof one));
	say("short", sendto(s, "x", 1, 0, (void *)&one, 4));
	say("fault", sendto(s, "x", 1, 0, (void *)8, sizeof one));
	say("no message", sendmsg(s, (void *)8, 0));
}

int main(int count, char **args)
{
	host = at(args[1]);
	nobody = at(args[2]);
	one = at(args[3]);
	two = at(args[4]);
	if (count > 5) {
		int s = stream(0);
		return connects(s, &host) || !echoes(s);
	}
	ways_to_connect();
	names_of_peers();
	ways_to_speak(args[0]);
	children(args);
	datagrams();
	return 0;
}
