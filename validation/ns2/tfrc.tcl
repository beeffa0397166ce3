# One TFRC flow beside one TCP flow over one bottleneck, in ns-2.35: what Chameleon was measured with.
#
#   ns tfrc.tcl key=value ...      (keys and defaults: `set p(...)` below)
#
# Prints one line: packets sent and dropped of TFRC, then of TCP. 1 Mbit/s, 50 packets of queue, five
# links of 5 ms to and fro (30 ms), access at 10 Mbit/s, packets of 1000 bytes. `overhead` is the most
# time in seconds that TCP's host takes for a packet, uniform at random: without it packets of fixed
# size keep their phase at the full queue.

array set p {
    tcp      sack
    smooth   1
    overhead 0.008
    seed     1
    to       400
}
foreach argument $argv {
    if {![regexp {^([a-z]+)=(.*)$} $argument -> key value] || ![info exists p($key)]} {
        puts stderr "unknown argument $argument"
        exit 2
    }
    set p($key) $value
}

set ns [new Simulator]
ns-random $p(seed)
set left  [$ns node]
set right [$ns node]
$ns duplex-link $left $right 1Mb 5ms DropTail
$ns queue-limit $left $right 50
foreach side {tfrc tcp} {
    set source($side) [$ns node]
    set target($side) [$ns node]
    $ns duplex-link $source($side) $left 10Mb 5ms DropTail
    $ns duplex-link $right $target($side) 10Mb 5ms DropTail
}

if {$p(tcp) eq "sack"} {
    set sender(tcp) [new Agent/TCP/Sack1]
    set sink(tcp) [new Agent/TCPSink/Sack1]
} else {
    set sender(tcp) [new Agent/TCP/Newreno]
    set sink(tcp) [new Agent/TCPSink]
}
$sender(tcp) set packetSize_ 1000
$sender(tcp) set window_ 64
$sender(tcp) set overhead_ $p(overhead)
set sender(tfrc) [new Agent/TFRC]
set sink(tfrc) [new Agent/TFRCSink]
$sender(tfrc) set packetSize_ 1000
$sender(tfrc) set ca_ $p(smooth)

set random [new RNG]
$random seed $p(seed)
set number 0
foreach side {tfrc tcp} {
    $sender($side) set fid_ $number
    incr number
    $ns attach-agent $source($side) $sender($side)
    $ns attach-agent $target($side) $sink($side)
    $ns connect $sender($side) $sink($side)
    set application [new Application/FTP]
    $application attach-agent $sender($side)
    $ns at [$random uniform 0 1] "$application start"
}
set monitor [$ns makeflowmon Fid]
$ns attach-fmon [$ns link $left $right] $monitor

proc finish {} {
    global monitor
    foreach flow [$monitor flows] {
        set sent([$flow set flowid_]) "[$flow set parrivals_],[$flow set pdrops_]"
    }
    puts "$sent(0),$sent(1)"
    exit 0
}
$ns at $p(to) finish
$ns run
