import CSimulation

/// What may happen in a run, and how often: runs differ more than steps do.
struct Profile {
  enum Step {
    case turn, pass, connect, subscribe, ask, grant, cancel, read, change, leave
    case emit, end
    case publish, values, complete, fireAndForget
    case stopReading, noise, halfClose, repeatLast, flood
    case restart, kill, killSoon, killInReload, losePower, reload, setClock, settle, faults
  }

  /// A rare one is left out of half of the runs.
  static let steps: [(step: Step, weight: Int, isRare: Bool)] = [
    (.turn, 60, false), (.pass, 20, false), (.connect, 12, false), (.subscribe, 24, false), (.ask, 4, false),
    (.grant, 24, false), (.cancel, 4, false), (.read, 20, false), (.change, 2, false), (.leave, 3, false),
    (.emit, 60, false), (.end, 1, true), (.publish, 8, false), (.values, 30, false), (.complete, 3, false),
    (.fireAndForget, 4, false), (.stopReading, 3, true), (.noise, 12, true), (.halfClose, 4, true),
    (.repeatLast, 2, true), (.flood, 4, true),
    (.restart, 3, true), (.kill, 2, true), (.killSoon, 2, true), (.killInReload, 1, true), (.losePower, 1, true),
    (.reload, 4, true), (.setClock, 2, true), (.settle, 2, false), (.faults, 4, true),
  ]

  private var weights: [Int] = []
  private(set) var hasFaults = false
  private(set) var setsClockBack = false
  private(set) var hasHostileClients = false
  private(set) var hasOrigin = false
  private(set) var turnsPerStep = 8
  private(set) var clients = 6
  /// Of 100 orderly clients, so many speak HTTP, and so many use a WebSocket.
  private var (http, webSocket) = (0, 0)

  init(_ random: inout Random) {
    for (_, weight, isRare) in Self.steps {
      weights.append(isRare && random.chance(50) ? 0 : weight * random.pick([1, 1, 2, 4]))
    }
    hasFaults = random.chance(60)
    setsClockBack = random.chance(50)
    hasHostileClients = random.chance(60)
    hasOrigin = random.chance(50)
    turnsPerStep = random.pick([1, 4, 12, 40])
    clients = random.pick([2, 4, 8, 12])
    http = random.pick([0, 40, 70, 95])
    webSocket = random.pick([0, 0, 5])
  }

  func someProtocol(_ random: inout Random) -> World.ClientProtocol {
    let place = random.below(100)
    return place < http ? .http : place < http + webSocket ? .webSocket : .rsocket
  }

  var prefersHTTP: Bool { http > 50 }

  /// Whether a hostile client speaks HTTP.
  func isHostileOverHTTP(_ random: inout Random) -> Bool { random.below(100) < http }

  func step(_ random: inout Random) -> Step {
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
        SIM_SEND_RESET, SIM_RECV_RESET, SIM_EPOLL_ADD, SIM_ACCEPT, SIM_MEMFD, SIM_SOCKETPAIR, SIM_PARCEL, SIM_STORE,
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
