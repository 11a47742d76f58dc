import CSimulation

/// What may happen in a run, and how often: runs differ more than steps do.
///
/// Each run leaves out a random part of it, so that what remains happens more often, and more of it at the same time.
struct Profile {
  enum Step {
    case turn, pass, connect, subscribe, ask, grant, cancel, read, change, leave
    case emit, end
    case publish, values, complete, fireAndForget
    case stopReading, noise, halfClose, repeatLast, flood
    case put, delete, useMade, pattern, answers
    case restart, kill, killSoon, killInReload, losePower, reload, setClock, settle, faults
  }

  /// A rare one is left out of half of the runs, and another one of a part of them.
  static let steps: [(step: Step, weight: Int, isRare: Bool)] = [
    (.turn, 60, false), (.pass, 20, false), (.connect, 12, false), (.subscribe, 24, false), (.ask, 4, false),
    (.grant, 24, false), (.cancel, 4, false), (.read, 20, false), (.change, 2, false), (.leave, 3, false),
    (.emit, 60, false), (.end, 1, true), (.publish, 8, false), (.values, 30, false), (.complete, 3, false),
    (.fireAndForget, 4, false), (.stopReading, 3, true), (.noise, 12, true), (.halfClose, 4, true),
    (.repeatLast, 2, true), (.flood, 4, true),
    (.restart, 5, true), (.kill, 2, true), (.killSoon, 2, true), (.killInReload, 2, true), (.losePower, 1, true),
    (.reload, 4, true), (.setClock, 2, true), (.settle, 2, false), (.faults, 4, true),
  ]

  private var weights: [Int] = []
  private(set) var hasFaults = false
  private(set) var setsClockBack = false
  /// So many of 100 clients are hostile.
  private(set) var hostileClients = 0
  private(set) var hasOrigin = false
  private(set) var turnsPerStep = 8
  private(set) var clients = 6
  /// So many of 100 orderly clients speak HTTP, and so many use a WebSocket.
  private var (http, webSocket) = (0, 0)
  /// So many of 100 responses with events over HTTP are WebSockets.
  private(set) var plainWebSockets = 0
  /// So many of 100 clients read whatever arrives at once.
  private(set) var eagerClients = 70
  /// So many of 100 events may be as large as their log permits.
  private(set) var largeEvents = 10
  /// So many of 100 streams drop nothing.
  private(set) var blockingStreams = 30
  /// So many of 100 requests are to a system stream.
  private(set) var systemStreams = 12
  /// So many of 100 subscriptions have a filter, and so many have markers.
  private(set) var (filters, markers) = (0, 0)
  /// So many of 100 streams have keys, and so many of 100 subscriptions to these begin with the state.
  private(set) var (keyedStreams, states) = (0, 0)
  /// So many of 100 readers of a state are slower than the log, and so many of 100 streams with keys keep few events.
  private(set) var slowStates = 0
  /// The filters of the run: few, so that they are shared.
  private var someFilters: [Filter] = []
  /// So many of 100 restarts have another configuration.
  private(set) var changedRestarts = 60
  /// How much is begun immediately before a restart.
  private(set) var rushes = [0]
  /// The names of the streams that are derived from others, and how many of 100 requests are to these.
  private(set) var (derivedStreams, derivedRequests) = ([String](), 0)
  /// Whether a stream has the events of another one by a socket.
  private(set) var hasMirror = false
  /// What the names of templates begin with, and how many of 100 steps and requests are for their streams.
  private(set) var (templates, madeStreams) = ([String](), 0)
  /// The bytes that all small logs may take; nil: as many as there are.
  private(set) var memory: Int?
  /// So many of 100 steps are for requests whose answers are streams.
  private(set) var answers = 0

  init(_ random: inout Random) {
    let omitted = random.pick([0, 20, 40])
    for (step, weight, isRare) in Self.steps {
      let isNeeded = step == .turn || step == .connect
      let isOmitted = random.chance(isRare ? 50 : isNeeded ? 0 : omitted)
      weights.append(isOmitted ? 0 : weight * random.pick([1, 1, 2, 4]))
    }
    hasFaults = random.chance(60)
    setsClockBack = random.chance(50)
    hostileClients = random.pick([0, 0, 40, 40, 80])
    hasOrigin = random.chance(50)
    turnsPerStep = random.pick([1, 4, 12, 40])
    clients = random.pick([2, 4, 8, 12])
    http = random.pick([0, 40, 70, 95])
    webSocket = random.pick([0, 0, 5, 100 - http])
    eagerClients = random.pick([20, 70, 90])
    largeEvents = random.pick([2, 10, 10, 60])
    blockingStreams = random.pick([10, 30, 80])
    systemStreams = random.pick([4, 12, 40])
    changedRestarts = random.pick([0, 60, 60])
    rushes = random.pick([[0], [0, 4, 12], [12, 30]])
    (filters, markers) = (random.pick([0, 40, 80]), random.pick([0, 60, 90]))
    (keyedStreams, states) = (random.pick([0, 60, 100]), random.pick([30, 80]))
    slowStates = keyedStreams > 0 ? random.pick([0, 50, 90]) : 0
    someFilters = Array(random.shuffled(Filter.allCases).prefix(1 + random.below(4)))
    // Runs without derived streams stay the same.
    var own = random
    derivedStreams = own.pick([[], [], [], ["d0"], ["d1"], ["d0", "d1"]])
    derivedRequests = derivedStreams.isEmpty ? 0 : own.pick([0, 30, 60])
    hasMirror = own.chance(30)
    if hasMirror { derivedRequests = max(derivedRequests, 30) }
    templates = own.pick([[], [], [], ["t"], ["t", "u"]])
    madeStreams = templates.isEmpty ? 0 : own.pick([10, 30, 60])
    memory = templates.isEmpty ? nil : own.pick([nil, nil, 64 << 10, 256 << 10])
    plainWebSockets = own.pick([0, 0, 30, 70])
    answers = own.pick([0, 0, 10, 40])
  }

  /// - Returns: nil for a subscription to all events.
  func someFilter(of stream: String, _ random: inout Random) -> Filter? {
    guard random.chance(filters) else { return nil }
    let filter = random.pick(someFilters)
    // The filter of a system stream is to show something.
    return World.systemStreams.contains(stream) ? .json : filter
  }

  /// How many events come at once.
  func someEventCount(_ random: inout Random) -> Int {
    random.pick(largeEvents > 50 ? [1, 1, 2, 5] : [1, 1, 1, 2, 5, 40])
  }

  func someProtocol(_ random: inout Random) -> World.ClientProtocol {
    let place = random.below(100)
    return place < http ? .http : place < http + webSocket ? .webSocket : .rsocket
  }

  var prefersHTTP: Bool { http > 50 }

  /// Whether a hostile client speaks HTTP.
  func isHostileOverHTTP(_ random: inout Random) -> Bool { random.below(100) < http }

  func step(_ random: inout Random) -> Step {
    if madeStreams > 0, random.chance(madeStreams / 2) {
      return random.pick([.put, .delete, .useMade, .useMade, .useMade, .useMade, .useMade, .pattern])
    }
    if answers > 0, random.chance(answers) { return .answers }
    var place = random.below(weights.reduce(0, +))
    for (index, weight) in weights.enumerated() {
      place -= weight
      if place < 0 { return Self.steps[index].step }
    }
    return .turn
  }

  /// Sets how likely each fault is.
  /// - Returns: whether connections of orderly clients may end by one.
  func setFaultRates(_ random: inout Random) -> Bool {
    sim_switch_rate = random.pick([0, 1000, 10000])
    guard hasFaults else { return false }
    return withUnsafeMutableBytes(of: &sim_fault_rate) { bytes in
      let rates = bytes.bindMemory(to: UInt32.self)
      for index in 0..<Int(SIM_FAULTS) where random.chance(40) {
        rates[index] = UInt32(random.pick([20, 200, 2000]))
      }
      for kind in [SIM_SEND_SHORT, SIM_RECV_SHORT, SIM_EPOLL_EINTR] where rates[Int(kind)] > 0 {
        rates[Int(kind)] = UInt32(random.pick([2000, 10000, 30000]))
      }
      rates[Int(SIM_LATE)] = min(rates[Int(SIM_LATE)], 200)
      let ending = [
        SIM_SEND_RESET, SIM_RECV_RESET, SIM_EPOLL_ADD, SIM_ACCEPT, SIM_MEMFD, SIM_WRITE, SIM_SOCKETPAIR, SIM_PARCEL,
        SIM_STORE,
      ]
      let mayEnd = ending.contains { rates[Int($0)] > 0 }
      // A disk that takes nothing, or a manager that keeps nothing, forgets ids where the clock goes back, too.
      if setsClockBack {
        for kind in [SIM_DISK_FULL, SIM_SYNC, SIM_WRITE, SIM_RENAME, SIM_STORE] { rates[Int(kind)] = 0 }
      }
      return mayEnd
    }
  }

  /// Whether what is kept of logs may be lost.
  static var hasStorageFaults: Bool { hasDiskFaults || has([SIM_STORE, SIM_MEMFD]) }

  /// Whether the disk may fail.
  static var hasDiskFaults: Bool { has([SIM_DISK_FULL, SIM_SYNC, SIM_WRITE, SIM_RENAME]) }

  private static func has(_ faults: [Int]) -> Bool {
    withUnsafeBytes(of: sim_fault_rate) { bytes in faults.contains { bytes.bindMemory(to: UInt32.self)[$0] > 0 } }
  }
}
