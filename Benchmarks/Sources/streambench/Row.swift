/// One measurement, with a name by which it can be selected.
struct Row: Sendable {
  let name: String
  let summary: String
  /// Takes minutes; runs only when selected.
  var isOnlyOnRequest = false
  let measure: @Sendable (Options) throws -> Void

  /// In the order of the runs.
  static let all = [
    Row(name: "start", summary: "from exec to READY", measure: measureStart),
    Row(name: "connections", summary: "set up, answered and closed, per second", measure: measureConnections),
    Row(name: "memory", summary: "of the daemon per idle subscriber, at 9,000", measure: measureMemory),
    Row(name: "idle", summary: "wake-ups with 9,000 subscribers on a quiet stream", measure: measureIdle),
    Row(
      name: "throughput", summary: "deliveries per second to 1, 100 and 1,000 subscribers", measure: measureThroughput),
    Row(
      name: "filters", summary: "published events per second with 1,000 subscribers that have filters",
      measure: measureFilters),
    Row(name: "keys", summary: "ingest, state and memory of a stream with 100,000 keys", measure: measureKeys),
    Row(name: "names", summary: "streams of a template: made, filled, forgotten", measure: measureNames),
    Row(name: "latency", summary: "from publishing to receiving, at 1,000 events per second", measure: measureLatency),
    Row(
      name: "neighbours", summary: "the same beside 10,000 idle and 100 stuck subscribers", measure: measureNeighbours),
    Row(name: "http", summary: "server-sent events and GET, beside RSocket, nchan and nginx", measure: measureHTTP),
    Row(name: "input", summary: "the most laborious inputs, per byte", measure: measureInput),
    Row(name: "polling", summary: "1,000 HTTP streams, each fetched once a second", measure: measurePolling),
    Row(
      name: "sources", summary: "a WebSocket and lines at 100,000 events/s, derived streams", measure: measureSources),
    Row(name: "together", summary: "one upstream for all streams of a template", measure: measureTogether),
    Row(
      name: "answers", summary: "requests whose answers are streams: made once, read by three", measure: measureAnswers),
    Row(name: "fleet", summary: "streams that three hosts share over NATS JetStream", measure: measureFleet),
    Row(name: "clients", summary: "events that Swift, C, Python and Node read", measure: measureClients),
    Row(
      name: "mapped", summary: "readers of a mapped stream beside sockets, and its publisher", measure: measureMapped),
    Row(name: "replay", summary: "of a full 64 MiB log to a new subscriber", measure: measureReplay),
    Row(name: "reactive", summary: "the library's operators, in units of a closure call", measure: measureReactive),
    Row(name: "async", summary: "values, publishers and sharing of asynchronous sequences", measure: measureAsync),
    Row(
      name: "soak", summary: "6 minutes of clients that connect, leave and stall; only if named", isOnlyOnRequest: true,
      measure: measureSoak),
    Row(
      name: "hostile", summary: "10 minutes of hostile clients and upstreams beside others; only if named",
      isOnlyOnRequest: true, measure: measureHostile),
  ]
}
