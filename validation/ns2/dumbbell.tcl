# Long-lived TCP flows over one bottleneck, in ns-2.35.
#
#   ns dumbbell.tcl key=value ...      (keys and defaults: `set p(...)` below)
#
# Prints, for every flow, the segments acknowledged between `from` and `to`, and for the
# bottleneck its mean queue and its drops in the same time (not with meter=off, which is for
# timing). Times are seconds, rates bits per second of IP packets, sizes bytes; every data packet
# is 1500 bytes of IP, every ACK 40.

array set p {
    tcp        reno
    beta       717
    rate       100e6
    rtts       0.01
    starts     0
    loss       0
    buffer     1000
    discipline fifo
    seed       1
    from       15
    to         60
    window     1000000
    meter      on
}
foreach argument $argv {
    if {![regexp {^([a-z]+)=(.*)$} $argument -> key value] || ![info exists p($key)]} {
        puts stderr "unknown argument $argument"
        exit 2
    }
    set p($key) $value
}
set rtts   [split $p(rtts) ,]
set starts [split $p(starts) ,]
if {[llength $rtts] != [llength $starts]} {
    puts stderr "as many rtts as starts, please"
    exit 2
}

# Segments are 1460 bytes of payload and 40 of headers, whatever options a sender carries.
set ipSize     1500
set headerSize 40

set ns [new Simulator]
remove-all-packet-headers
add-packet-header IP TCP Flags

# 99 % of the shortest one-way delay lies on the bottleneck; a flow's two access links share
# the rest of its own delay equally.
set shortest [lindex [lsort -real $rtts] 0]
set bottleneckDelay [expr {0.99 * $shortest / 2}]

set left  [$ns node]
set right [$ns node]

proc link {from to rate delay kind limit} {
    global ns
    $ns simplex-link $from $to $rate $delay $kind
    $ns queue-limit $from $to $limit
}

# DropTail refuses a packet when `limit_ - 1` others wait: one more, so that `buffer` can wait.
if {$p(discipline) eq "drr"} {
    Queue/DRR set buckets_ 64
    Queue/DRR set quantum_ $ipSize
    Queue/DRR set mask_ 0
    Queue/DRR set blimit_ [expr {int($p(buffer)) * $ipSize}]
    link $left $right $p(rate) $bottleneckDelay DRR 1000000
} else {
    link $left $right $p(rate) $bottleneckDelay DropTail [expr {int($p(buffer)) + 1}]
}
link $right $left $p(rate) $bottleneckDelay DropTail 1000000

if {$p(loss) > 0} {
    set stream [new RNG]
    $stream seed [expr {7919 * int($p(seed)) + 17}]
    set uniform [new RandomVariable/Uniform]
    $uniform set min_ 0.0
    $uniform set max_ 1.0
    $uniform use-rng $stream
    set errors [new ErrorModel]
    $errors unit pkt
    $errors set rate_ $p(loss)
    $errors ranvar $uniform
    # Behind the queue and the transmitter; its losses are kept out of the queue's drop count.
    $ns link-lossmodel $errors $left $right
    $errors drop-target [new Agent/Null]
}

proc sender {} {
    global p ipSize headerSize
    if {$p(tcp) eq "reno"} {
        set tcp [new Agent/TCP/Sack1]
        $tcp set packetSize_ [expr {$ipSize - $headerSize}]
    } else {
        # The Linux agent takes its round-trip times from timestamps; the option's size is
        # taken off the payload so that the packet stays 1500 bytes.
        set tcp [new Agent/TCP/Linux]
        $tcp set timestamps_ true
        $tcp set packetSize_ [expr {$ipSize - $headerSize - [$tcp set ts_option_size_]}]
    }
    $tcp set window_ $p(window)
    $tcp set maxcwnd_ 0
    $tcp set windowInit_ 3
    $tcp set windowInitOption_ 1
    $tcp set tcpTick_ 0.001
    $tcp set minrto_ 0.2
    $tcp set maxrto_ 60
    $tcp set overhead_ 0
    $tcp set singledup_ 1
    return $tcp
}

set flow 0
foreach rtt $rtts start $starts {
    set source [$ns node]
    set target [$ns node]
    set access [expr {($rtt / 2 - $bottleneckDelay) / 2}]
    foreach {a b} [list $source $left $left $source $right $target $target $right] {
        link $a $b [expr {10 * $p(rate)}] $access DropTail 1000000
    }
    set tcp($flow) [sender]
    set sink [new Agent/TCPSink/Sack1]
    if {$p(tcp) ne "reno"} {
        $sink set ts_echo_rfc1323_ true
    }
    $ns attach-agent $source $tcp($flow)
    $ns attach-agent $target $sink
    $ns connect $tcp($flow) $sink
    if {$p(tcp) eq "cubic"} {
        $ns at 0 "$tcp($flow) select_ca cubic"
        $ns at 0 "$tcp($flow) set_ca_default_param cubic beta $p(beta)"
    }
    set application [new Application/FTP]
    $application attach-agent $tcp($flow)
    $ns at $start "$application start"
    incr flow
}

if {$p(meter)} {
    set monitor [$ns monitor-queue $left $right ""]
    set backlog [$monitor get-pkts-integrator]
}

# A reading of all counters that are differenced at the end.
proc reading {} {
    global ns p tcp flow monitor backlog
    set counters {0 0 0}
    if {$p(meter)} {
        $backlog newpoint [$ns now] [$backlog set lasty_]
        set counters [list [$backlog set sum_] [$monitor set parrivals_] [$monitor set pdrops_]]
    }
    for {set i 0} {$i < $flow} {incr i} {
        lappend counters [$tcp($i) set ack_] [$tcp($i) set ndatapack_]
    }
    return $counters
}

proc finish {} {
    global p first flow clock
    puts [format "wall_s %.6f" [expr {([clock microseconds] - $clock) / 1e6}]]
    set seconds [expr {double($p(to)) - $p(from)}]
    set differences {}
    foreach before $first after [reading] {
        lappend differences [expr {$after - $before}]
    }
    set rest [lassign $differences queued arrived dropped]
    puts [format "queue_mean %.4f" [expr {$queued / $seconds}]]
    puts [format "arrived %d" [expr {int($arrived)}]]
    puts [format "dropped %d" [expr {int($dropped)}]]
    set i 0
    set total 0
    foreach {acked sent} $rest {
        puts "flow $i acked $acked"
        incr i
        incr total $sent
    }
    puts "sent $total"
    exit 0
}

$ns at $p(from) {set first [reading]}
$ns at $p(to) finish
set clock [clock microseconds]
$ns run
