//! The filter that the kernel runs at each system call (classic BPF over `struct seccomp_data`): which calls
//! are asked about, which fail at once, and all others go on.

use libc::sock_filter;

/// Offsets in `struct seccomp_data` (seccomp(2)): the number of the call, the architecture, and the lower
/// half of an argument, on machines whose lowest byte comes first.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(n: u32) -> u32 {
    16 + 8 * n
}

// Instructions (linux/bpf_common.h).
const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const IF_ANY_BIT: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

// What becomes of a call (linux/seccomp.h).
const ALLOW: u32 = 0x7fff_0000;
const ASK: u32 = 0x7fc0_0000;
const FAIL: u32 = 0x0005_0000;

/// This machine's own calls (linux/audit.h: the number of the processor in ELF, and that it has 64 bits and
/// the lowest byte first); those of another, such as of programs of 32 bits, go on.
#[cfg(target_arch = "x86_64")]
const OWN: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OWN: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const OWN: u32 = 0xc000_00f3;
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64"
)))]
const OWN: u32 = 0; // nothing is asked about

/// From here on numbers are those of the x32 calls of x86-64.
const X32: u32 = 0x4000_0000;

const fn instruction(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// What is done with a call.
enum Case {
    /// It is asked about.
    Ask,
    /// It is asked about if both arguments are these.
    AskIf([(u32, i32); 2]),
    /// It is asked about if an argument, an address in memory, is not null.
    AskWith(u32),
    /// It fails if an argument has a bit, and else this.
    FailIf((u32, i32, i32), &'static Case),
}

impl Case {
    fn code(&self) -> Vec<sock_filter> {
        let end = |what| instruction(RETURN, what, 0, 0);
        let fail = |errno: i32| end(FAIL | errno as u32);
        match *self {
            Self::Ask => vec![end(ASK)],
            Self::AskIf([(a, is), (b, too)]) => vec![
                instruction(LOAD, argument(a), 0, 0),
                instruction(IF_EQUAL, is as u32, 0, 3),
                instruction(LOAD, argument(b), 0, 0),
                instruction(IF_EQUAL, too as u32, 0, 1),
                end(ASK),
                end(ALLOW),
            ],
            Self::AskWith(address) => vec![
                instruction(LOAD, argument(address), 0, 0),
                instruction(IF_EQUAL, 0, 0, 2),
                // The upper half.
                instruction(LOAD, argument(address) + 4, 0, 0),
                instruction(IF_EQUAL, 0, 1, 0),
                end(ASK),
                end(ALLOW),
            ],
            Self::FailIf((a, bit, errno), otherwise) => {
                let mut code = vec![
                    instruction(LOAD, argument(a), 0, 0),
                    instruction(IF_ANY_BIT, bit as u32, 0, 1),
                    fail(errno),
                ];
                code.extend(otherwise.code());
                code
            }
        }
    }
}

/// The filter. Fast open of TCP, which connects in `send`, is not there, as on systems that have it turned
/// off; nor is io_uring, through which connections would pass unseen: nearly all programs do without either.
pub(crate) fn program() -> Vec<sock_filter> {
    let unsupported = libc::EOPNOTSUPP;
    let cases = [
        (libc::SYS_connect, Case::Ask),
        (libc::SYS_getpeername, Case::Ask),
        (
            libc::SYS_getsockopt,
            Case::AskIf([(1, libc::SOL_SOCKET), (2, libc::SO_ERROR)]),
        ),
        (
            libc::SYS_sendto,
            Case::FailIf((3, libc::MSG_FASTOPEN, unsupported), &Case::AskWith(4)),
        ),
        (
            libc::SYS_sendmsg,
            Case::FailIf((2, libc::MSG_FASTOPEN, unsupported), &Case::Ask),
        ),
        (
            libc::SYS_sendmmsg,
            Case::FailIf((3, libc::MSG_FASTOPEN, unsupported), &Case::Ask),
        ),
        (libc::SYS_recvfrom, Case::AskWith(4)),
        (libc::SYS_recvmsg, Case::Ask),
        (libc::SYS_recvmmsg, Case::Ask),
        // It fails, too, and is told.
        (libc::SYS_io_uring_setup, Case::Ask),
    ];
    let allow = instruction(RETURN, ALLOW, 0, 0);
    let mut code = vec![
        instruction(LOAD, ARCHITECTURE, 0, 0),
        instruction(IF_EQUAL, OWN, 1, 0),
        allow,
        instruction(LOAD, NUMBER, 0, 0),
        instruction(IF_AT_LEAST, X32, 0, 1),
        allow,
    ];
    for (number, case) in cases {
        let case = case.code();
        // At most nine instructions.
        code.push(instruction(IF_EQUAL, number as u32, 0, case.len() as u8));
        code.extend(case);
    }
    code.push(allow);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says of a call.
    fn run(arch: u32, number: i64, args: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend((number as u32).to_le_bytes());
        data.extend(arch.to_le_bytes());
        data.extend([0; 8]);
        data.extend(args.iter().flat_map(|arg| arg.to_le_bytes()));
        let (code, mut at, mut accumulator) = (program(), 0, 0);
        loop {
            let step = &code[at];
            let holds = match step.code {
                RETURN => return step.k,
                LOAD => {
                    let from = step.k as usize;
                    accumulator = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
                    at += 1;
                    continue;
                }
                IF_EQUAL => accumulator == step.k,
                IF_ANY_BIT => accumulator & step.k != 0,
                IF_AT_LEAST => accumulator >= step.k,
                _ => unreachable!(),
            };
            at += 1 + usize::from(if holds { step.jt } else { step.jf });
        }
    }

    #[test]
    fn calls_that_connect_or_ask_about_connections_are_asked_about_and_no_others() {
        let of = |number, args| run(OWN, number, args);
        assert_eq!(of(libc::SYS_connect, [9; 6]), ASK);
        assert_eq!(of(libc::SYS_getpeername, [9; 6]), ASK);
        let asks = [3, libc::SOL_SOCKET as u64, libc::SO_ERROR as u64, 0, 0, 0];
        assert_eq!(of(libc::SYS_getsockopt, asks), ASK);
        let other = [3, libc::SOL_SOCKET as u64, libc::SO_TYPE as u64, 0, 0, 0];
        assert_eq!(of(libc::SYS_getsockopt, other), ALLOW);
        let tcp = [3, libc::IPPROTO_TCP as u64, libc::SO_ERROR as u64, 0, 0, 0];
        assert_eq!(of(libc::SYS_getsockopt, tcp), ALLOW);
        for number in [libc::SYS_read, libc::SYS_execve, libc::SYS_accept4, 9999] {
            assert_eq!(of(number, [0; 6]), ALLOW, "{number}");
        }
        assert_eq!(run(0x4000_0003, libc::SYS_connect, [0; 6]), ALLOW);
        assert_eq!(of(i64::from(X32) + libc::SYS_connect, [0; 6]), ALLOW);
    }

    #[test]
    fn ways_around_fail_as_where_the_system_lacks_them() {
        let fails = |errno: i32| FAIL | errno as u32;
        let flag = libc::MSG_FASTOPEN as u64;
        let unsupported = fails(libc::EOPNOTSUPP);
        for (number, at) in [
            (libc::SYS_sendto, 3),
            (libc::SYS_sendmsg, 2),
            (libc::SYS_sendmmsg, 3),
        ] {
            let mut args = [0; 6];
            args[at] = libc::MSG_NOSIGNAL as u64;
            let addressed = if number == libc::SYS_sendto {
                ALLOW
            } else {
                ASK
            };
            assert_eq!(run(OWN, number, args), addressed);
            args[at] |= flag;
            assert_eq!(run(OWN, number, args), unsupported);
        }
        // Of datagrams those that say where they go, or ask where they come from.
        for (at, expected) in [(0, ALLOW), (0x1234_5678, ASK), (0x1234 << 32, ASK)] {
            let args = [3, 9, 9, 0, at, 16];
            assert_eq!(run(OWN, libc::SYS_sendto, args), expected, "{at:x}");
            assert_eq!(run(OWN, libc::SYS_recvfrom, args), expected, "{at:x}");
        }
        assert_eq!(run(OWN, libc::SYS_io_uring_setup, [0; 6]), ASK);
    }
}
