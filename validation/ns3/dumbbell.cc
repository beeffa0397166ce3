// Long-lived TCP flows over one bottleneck, in ns-3.37.
//
//   dumbbell --key=value ...      (keys and defaults: `struct Parameters`)
//
// Prints, for every flow, the payload bytes delivered in order between `from` and `to`, and for
// the bottleneck its mean queue and its drops in the same time. Times are seconds, rates bits
// per second of IP packets; every full data packet is 1500 bytes of IP, a plain ACK 40.

#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

using namespace ns3;

namespace
{

constexpr uint32_t kIpSize = 1500;
constexpr uint32_t kPayload = 1460;
constexpr uint32_t kPppHeader = 2;
constexpr uint32_t kSocketBuffer = 64u << 20;

struct Parameters
{
    std::string tcp = "reno"; // or cubic
    double rate = 100e6;
    std::string rtts = "0.01";
    std::string starts = "0";
    double loss = 0;
    uint32_t buffer = 1000;
    uint32_t seed = 1;
    double from = 15;
    double to = 60;
    bool meter = true; // false for timing
    bool describe = false;
};

std::vector<double>
Numbers(const std::string& list)
{
    std::vector<double> numbers;
    std::stringstream stream(list);
    for (std::string item; std::getline(stream, item, ',');)
    {
        numbers.push_back(std::stod(item));
    }
    return numbers;
}

// Counts at one queue: the time integral of its length, and arrivals and drops so far.
class QueueMeter
{
  public:
    // Without a queue discipline it is the node's traffic-control layer that drops what finds
    // the device's queue full; no other queue of that node ever is.
    void Attach(Ptr<Queue<Packet>> queue, Ptr<TrafficControlLayer> layer)
    {
        layer->TraceConnectWithoutContext("TcDrop", MakeCallback(&QueueMeter::Drop, this));
        queue->TraceConnectWithoutContext("PacketsInQueue",
                                          MakeCallback(&QueueMeter::Length, this));
        queue->TraceConnectWithoutContext("Enqueue", MakeCallback(&QueueMeter::Enqueue, this));
        queue->TraceConnectWithoutContext("Drop", MakeCallback(&QueueMeter::Drop, this));
    }

    void Reset()
    {
        Advance();
        m_integral = 0;
        m_arrived = 0;
        m_dropped = 0;
    }

    double Integral()
    {
        Advance();
        return m_integral;
    }

    uint64_t Arrived() const
    {
        return m_arrived;
    }

    uint64_t Dropped() const
    {
        return m_dropped;
    }

  private:
    void Advance()
    {
        const double now = Simulator::Now().GetSeconds();
        m_integral += m_length * (now - m_since);
        m_since = now;
    }

    void Length(uint32_t, uint32_t length)
    {
        Advance();
        m_length = length;
    }

    void Enqueue(Ptr<const Packet>)
    {
        ++m_arrived;
    }

    void Drop(Ptr<const Packet>)
    {
        ++m_arrived;
        ++m_dropped;
    }

    double m_integral = 0;
    double m_since = 0;
    uint32_t m_length = 0;
    uint64_t m_arrived = 0;
    uint64_t m_dropped = 0;
};

void
SetTcpDefaults(const std::string& tcp)
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType",
                       TypeIdValue(TypeId::LookupByName(tcp == "cubic" ? "ns3::TcpCubic"
                                                                       : "ns3::TcpLinuxReno")));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(kPayload));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(3));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::ConnCount", UintegerValue(1000));
    Config::SetDefault("ns3::TcpSocket::DataRetries", UintegerValue(1000));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(kSocketBuffer));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(kSocketBuffer));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MilliSeconds(1)));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(false));
}

// PPP adds two bytes to every packet; the rate is raised so that a 1500-byte packet takes the
// time it takes at `rate` without them.
NetDeviceContainer
Link(Ptr<Node> a, Ptr<Node> b, double rate, double delay, uint32_t limit)
{
    PointToPointHelper link;
    const double framed = rate * (kIpSize + kPppHeader) / kIpSize;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(static_cast<uint64_t>(framed))));
    link.SetDeviceAttribute("Mtu", UintegerValue(kIpSize));
    link.SetChannelAttribute("Delay", TimeValue(Seconds(delay)));
    link.SetQueue("ns3::DropTailQueue",
                  "MaxSize",
                  QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, limit)));
    return link.Install(a, b);
}

// Gives both ends addresses, and takes away the queue discipline that comes with them: the
// device's own queue is the only one.
Ipv4InterfaceContainer
AssignAddresses(Ipv4AddressHelper& addresses, const NetDeviceContainer& devices)
{
    const auto interfaces = addresses.Assign(devices);
    addresses.NewNetwork();
    TrafficControlHelper().Uninstall(devices);
    return interfaces;
}

void
Describe()
{
    for (const char* name : {"ns3::TcpL4Protocol",
                             "ns3::TcpSocket",
                             "ns3::TcpSocketBase",
                             "ns3::TcpCubic",
                             "ns3::TcpPrrRecovery"})
    {
        const TypeId type = TypeId::LookupByName(name);
        for (std::size_t i = 0; i < type.GetAttributeN(); ++i)
        {
            const auto attribute = type.GetAttribute(i);
            std::printf("%s::%s %s\n",
                        name,
                        attribute.name.c_str(),
                        attribute.initialValue->SerializeToString(attribute.checker).c_str());
        }
    }
}

} // namespace

int
main(int argc, char* argv[])
{
    Parameters p;
    CommandLine arguments(__FILE__);
    arguments.AddValue("tcp", "reno or cubic", p.tcp);
    arguments.AddValue("rate", "bottleneck, bit/s", p.rate);
    arguments.AddValue("rtts", "round-trip time of each flow, s", p.rtts);
    arguments.AddValue("starts", "start of each flow, s", p.starts);
    arguments.AddValue("loss", "probability, bottleneck, forward", p.loss);
    arguments.AddValue("buffer", "packets that can wait", p.buffer);
    arguments.AddValue("seed", "run number of the random streams", p.seed);
    arguments.AddValue("from", "measured from, s", p.from);
    arguments.AddValue("to", "measured to, s", p.to);
    arguments.AddValue("meter", "measure the bottleneck's queue", p.meter);
    arguments.AddValue("describe", "print the attributes in force and stop", p.describe);
    arguments.Parse(argc, argv);

    SetTcpDefaults(p.tcp);
    if (p.describe)
    {
        Describe();
        return 0;
    }
    RngSeedManager::SetSeed(20161);
    RngSeedManager::SetRun(p.seed);

    const auto rtts = Numbers(p.rtts);
    const auto starts = Numbers(p.starts);
    NS_ABORT_MSG_IF(rtts.empty() || rtts.size() != starts.size(), "as many rtts as starts, please");

    // 99 % of the shortest one-way delay lies on the bottleneck; a flow's two access links share
    // the rest of its own delay equally.
    const double bottleneckDelay = 0.99 * *std::min_element(rtts.begin(), rtts.end()) / 2;
    const uint32_t ample = 1000000;

    NodeContainer routers(2);
    NodeContainer sources(rtts.size());
    NodeContainer targets(rtts.size());
    InternetStackHelper internet;
    internet.Install(routers);
    internet.Install(sources);
    internet.Install(targets);

    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    const auto bottleneck =
        Link(routers.Get(0), routers.Get(1), p.rate, bottleneckDelay, p.buffer);
 AssignAddresses(addresses, bottleneck);
    DynamicCast<PointToPointNetDevice>(bottleneck.Get(1))
        ->GetQueue()
        ->SetAttribute("MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, ample)));
    if (p.loss > 0)
    {
        auto errors = CreateObject<RateErrorModel>();
        errors->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
        errors->SetRate(p.loss);
        bottleneck.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));
    }

    const uint16_t port = 5000;
    std::vector<Ptr<PacketSink>> sinks;
    for (std::size_t i = 0; i < rtts.size(); ++i)
    {
        const double access = (rtts[i] / 2 - bottleneckDelay) / 2;
 AssignAddresses(addresses, Link(sources.Get(i), routers.Get(0), 10 * p.rate, access, ample));
        const auto last =
 AssignAddresses(addresses, Link(routers.Get(1), targets.Get(i), 10 * p.rate, access, ample));

        PacketSinkHelper sink("ns3::TcpSocketFactory",
                              InetSocketAddress(Ipv4Address::GetAny(), port));
        auto installed = sink.Install(targets.Get(i));
        sinks.push_back(DynamicCast<PacketSink>(installed.Get(0)));
        BulkSendHelper source("ns3::TcpSocketFactory",
                              InetSocketAddress(last.GetAddress(1), port));
        source.SetAttribute("SendSize", UintegerValue(16 * kPayload));
        source.Install(sources.Get(i)).Start(Seconds(starts[i]));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    QueueMeter meter;
    if (p.meter)
    {
        meter.Attach(DynamicCast<PointToPointNetDevice>(bottleneck.Get(0))->GetQueue(),
                     routers.Get(0)->GetObject<TrafficControlLayer>());
    }
    std::vector<uint64_t> before(sinks.size());
    Simulator::Schedule(Seconds(p.from), [&] {
        meter.Reset();
        std::transform(sinks.begin(), sinks.end(), before.begin(), [](auto& sink) {
            return sink->GetTotalRx();
        });
    });
    Simulator::Stop(Seconds(p.to));

    const auto clock = std::chrono::steady_clock::now();
    Simulator::Run();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - clock;

    std::printf("queue_mean %.4f\n", meter.Integral() / (p.to - p.from));
    std::printf("arrived %lu\ndropped %lu\n", meter.Arrived(), meter.Dropped());
    for (std::size_t i = 0; i < sinks.size(); ++i)
    {
        std::printf("flow %zu delivered_bytes %lu\n", i, sinks[i]->GetTotalRx() - before[i]);
    }
    std::printf("wall_s %.3f\n", wall.count());
    Simulator::Destroy();
    return 0;
}
