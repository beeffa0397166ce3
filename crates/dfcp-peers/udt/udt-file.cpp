// UDT (Debian's libudt) moving one file from file to file, by the contract that the lab's programs
// keep: the receiver prints {"ready": true} once it listens, and each side one JSON object as its
// last line; times are nanoseconds of the monotonic clock.
//
//   dfcp-peer-udt recv PORT FILE LIMIT_SECONDS
//   dfcp-peer-udt send HOST PORT FILE
//
// The sender tells the length first; the receiver answers with one byte when it has everything.

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <udt/udt.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

// Windows for 1 Gbit/s at 200 ms and more; UDT takes the packet size without IPv4's fragments.
const int kPacket = 1500;
const int kWindowPackets = 65536;
const int kBuffer = 64 << 20;
const int kSocketBuffer = 4 << 20;
const int kBlock = 256 << 10;
const uint64_t kSampleNs = 10000000;

uint64_t now_ns() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return uint64_t(time.tv_sec) * 1000000000u + time.tv_nsec;
}

[[noreturn]] void fail(const std::string &what) {
    fprintf(stderr, "dfcp-peer-udt: %s\n", what.c_str());
    _exit(1);
}

[[noreturn]] void fail_udt(const std::string &what) {
    fail(what + ": " + UDT::getlasterror().getErrorMessage());
}

UDTSOCKET make_socket() {
    UDTSOCKET socket = UDT::socket(AF_INET, SOCK_STREAM, 0);
    UDT::setsockopt(socket, 0, UDT_MSS, &kPacket, sizeof kPacket);
    UDT::setsockopt(socket, 0, UDT_FC, &kWindowPackets, sizeof kWindowPackets);
    UDT::setsockopt(socket, 0, UDT_SNDBUF, &kBuffer, sizeof kBuffer);
    UDT::setsockopt(socket, 0, UDT_RCVBUF, &kBuffer, sizeof kBuffer);
    UDT::setsockopt(socket, 0, UDP_SNDBUF, &kSocketBuffer, sizeof kSocketBuffer);
    UDT::setsockopt(socket, 0, UDP_RCVBUF, &kSocketBuffer, sizeof kSocketBuffer);
    return socket;
}

sockaddr_in address(const char *host, const char *port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(atoi(port)));
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail(std::string("not an address: ") + host);
    return address;
}

void receive_exactly(UDTSOCKET socket, char *to, int length) {
    for (int got = 0; got < length;) {
        int more = UDT::recv(socket, to + got, length - got, 0);
        if (more == UDT::ERROR) fail_udt("recv");
        got += more;
    }
}

void send_exactly(UDTSOCKET socket, const char *from, int length) {
    for (int sent = 0; sent < length;) {
        int more = UDT::send(socket, from + sent, length - sent, 0);
        if (more == UDT::ERROR) fail_udt("send");
        sent += more;
    }
}

struct Sample {
    uint64_t ns, bytes;
};

// The receiver's last line: tenth_ns is when a tenth of what arrived had arrived.
void report(const std::vector<Sample> &samples) {
    if (samples.empty()) {
        printf("{\"bytes\":0,\"first_ns\":null,\"tenth_ns\":null,\"last_ns\":null,\"samples\":[]}\n");
        return;
    }
    const uint64_t bytes = samples.back().bytes;
    uint64_t tenth = samples.back().ns;
    for (const Sample &sample : samples) {
        if (sample.bytes >= (bytes + 9) / 10) {
            tenth = sample.ns;
            break;
        }
    }
    printf("{\"bytes\":%llu,\"first_ns\":%llu,\"tenth_ns\":%llu,\"last_ns\":%llu,\"samples\":[",
           (unsigned long long)bytes, (unsigned long long)samples.front().ns, (unsigned long long)tenth,
           (unsigned long long)samples.back().ns);
    for (size_t i = 0; i < samples.size(); ++i)
        printf("%s[%llu,%llu]", i ? "," : "", (unsigned long long)samples[i].ns,
               (unsigned long long)samples[i].bytes);
    printf("]}\n");
}

int receive(const char *port, const char *path, int limit_seconds) {
    const uint64_t deadline = now_ns() + uint64_t(limit_seconds) * 1000000000u;
    UDTSOCKET listener = make_socket();
    sockaddr_in local = address("0.0.0.0", port);
    if (UDT::bind(listener, (sockaddr *)&local, sizeof local) == UDT::ERROR) fail_udt("bind");
    if (UDT::listen(listener, 1) == UDT::ERROR) fail_udt("listen");
    puts("{\"ready\": true}");
    fflush(stdout);
    sockaddr_storage remote;
    int length = sizeof remote;
    UDTSOCKET socket = UDT::accept(listener, (sockaddr *)&remote, &length);
    if (socket == UDT::INVALID_SOCK) fail_udt("accept");
    const int patience_ms = 100;  // how often the deadline is looked at
    uint64_t size = 0;
    receive_exactly(socket, (char *)&size, sizeof size);
    UDT::setsockopt(socket, 0, UDT_RCVTIMEO, &patience_ms, sizeof patience_ms);
    FILE *file = fopen(path, "wb");
    if (!file) fail(std::string("cannot write ") + path);
    std::vector<char> buffer(kBlock);
    std::vector<Sample> samples;
    uint64_t got = 0, last = 0;
    while (got < size && now_ns() < deadline) {
        int more = UDT::recv(socket, buffer.data(), kBlock, 0);
        if (more == UDT::ERROR) {
            if (UDT::getlasterror().getErrorCode() == UDT::ERRORINFO::ETIMEOUT) continue;
            fail_udt("recv");
        }
        if (fwrite(buffer.data(), 1, size_t(more), file) != size_t(more)) fail("write");
        fflush(file);
        got += uint64_t(more);
        const uint64_t now = now_ns();
        if (samples.empty() || now >= last + kSampleNs || got == size) {
            samples.push_back({now, got});
            last = now;
        }
    }
    fclose(file);
    const char all = got == size;
    send_exactly(socket, &all, 1);
    report(samples);
    fflush(stdout);
    // Closing sends what is left and ends UDT's threads.
    UDT::close(socket);
    UDT::close(listener);
    return 0;
}

int send(const char *host, const char *port, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(std::string("cannot read ") + path);
    fseeko(file, 0, SEEK_END);
    const uint64_t size = uint64_t(ftello(file));
    rewind(file);
    const uint64_t start = now_ns();
    UDTSOCKET socket = make_socket();
    sockaddr_in remote = address(host, port);
    if (UDT::connect(socket, (sockaddr *)&remote, sizeof remote) == UDT::ERROR) fail_udt("connect");
    send_exactly(socket, (const char *)&size, sizeof size);
    std::vector<char> buffer(kBlock);
    while (size_t length = fread(buffer.data(), 1, buffer.size(), file))
        send_exactly(socket, buffer.data(), int(length));
    char all = 0;
    receive_exactly(socket, &all, 1);
    const uint64_t done = now_ns();
    if (!all) fail("the receiver gave up");
    UDT::close(socket);
    printf("{\"bytes\":%llu,\"start_ns\":%llu,\"done_ns\":%llu}\n", (unsigned long long)size,
           (unsigned long long)start, (unsigned long long)done);
    fflush(stdout);
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::string role = argc > 1 ? argv[1] : "";
    UDT::startup();
    int status = 2;
    if (role == "recv" && argc == 5)
        status = receive(argv[2], argv[3], atoi(argv[4]));
    else if (role == "send" && argc == 5)
        status = send(argv[2], argv[3], argv[4]);
    else
        fprintf(stderr, "usage: dfcp-peer-udt recv PORT FILE LIMIT_SECONDS | send HOST PORT FILE\n");
    // UDT::cleanup waits for its collector; the process ends anyway.
    fflush(stdout);
    _exit(status);
}
