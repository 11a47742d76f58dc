/// A source of randomness that a seed determines. Source: SplitMix64 (Steele, Lea, Flood 2014).
struct SeededRandom {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    z = (z ^ z >> 30) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ z >> 27) &* 0x94d0_49bb_1331_11eb
    return z ^ z >> 31
  }

  mutating func below(_ bound: UInt64) -> UInt64 { next() % bound }

  mutating func isOne(of count: UInt64) -> Bool { below(count) == 0 }
}

/// What may go wrong in a simulated fleet.
struct Faults {
  /// So many of 1,000 messages. Each one may also be late, and overtake others.
  var lost: UInt64 = 20
  var repeated: UInt64 = 20
  /// Hosts end at any time, and begin anew.
  var kills = true
  /// The wall clocks of hosts differ by up to this, in microseconds.
  var clockDifference: UInt64 = 3_600_000_000
  /// The engine's logs lose their last entries.
  var restoresOldLog = false
  /// Somebody removes the last entry of a log.
  var removesLastEntries = false
  /// Leaders are cut off from the other hosts, each with its broker: this one answers reads, and stores nothing.
  var cutsOff = false
  /// The engine checks the expected sequence number only when an entry arrives, as a subject-level check does.
  var hasBrokenFence = false
  /// Half of the hosts have another definition of the streams.
  var hasOtherDefinitions = false
  /// Values are larger than one message.
  var hasLargeValues = false

  var losesEntries: Bool { restoresOldLog || removesLastEntries }
}

/// The time of a simulation, the processes of its hosts, and the messages between them and the engine.
struct SimulatedNetwork<Content> {
  struct Message {
    var host: Int?  // nil: to the engine
    /// The host's process; nil: whichever there is.
    var run: Int?
    var content: Content
    /// The number of a question to the engine, and of its outcomes: the first one counts, as the engine answers once.
    var question: UInt64?
  }

  static var second: UInt64 { 1_000_000_000 }

  let faults: Faults
  var random: SeededRandom
  private(set) var now: UInt64 = 0
  /// Whether nothing goes wrong any more.
  var isCalm = false
  /// Whether all messages take the same time, so that none overtakes another.
  var isOrdered = false
  /// The number of each host's process.
  private var runs: [Int]
  private var dead: Set<Int> = []
  private var questionCount: UInt64 = 0
  /// Those without an outcome.
  private var questions: Set<UInt64> = []
  /// Messages under way, in the order of their arrival.
  private var queue: [(time: UInt64, order: UInt64, message: Message)] = []
  private var order: UInt64 = 0

  init(seed: UInt64, hostCount: Int, faults: Faults) {
    random = SeededRandom(state: seed)
    self.faults = faults
    runs = Array(repeating: 0, count: hostCount)
  }

  // MARK: Hosts

  mutating func anyHost() -> Int { Int(random.below(UInt64(runs.count))) }

  func isAlive(_ host: Int) -> Bool { !dead.contains(host) }

  mutating func kill(_ host: Int) {
    dead.insert(host)
    runs[host] += 1
  }

  mutating func revive(_ host: Int) { dead.remove(host) }

  /// How far the replica is that answers for a log: it may lag behind.
  mutating func replicaEnd(of count: Int) -> Int {
    isCalm || !random.isOne(of: 10) ? count : Int(random.below(UInt64(count + 1)))
  }

  /// How many entries a log loses that is restored from a copy.
  mutating func lostCount(of count: Int) -> Int { Int(random.below(UInt64(min(count, 20) + 1))) }

  // MARK: Messages

  /// Sends a message, which may be lost, late or repeated.
  mutating func post(_ content: Content, to host: Int?, question: UInt64? = nil) {
    let delay = delay()
    if !isCalm {
      if random.below(1000) < faults.lost { return }
      if random.below(1000) < faults.repeated {
        enqueue(content, to: host, after: delay + random.below(3 * Self.second), question: question)
      }
    }
    enqueue(content, to: host, after: delay, question: question)
  }

  /// Sends what arrives: a host's own timers.
  mutating func enqueue(_ content: Content, to host: Int?, after delay: UInt64, question: UInt64? = nil) {
    add(Message(host: host, run: host.map { runs[$0] }, content: content, question: question), at: now + delay)
  }

  /// Lets something happen to the engine or a host, whichever process that has then.
  mutating func plan(_ content: Content, for host: Int?, after delay: UInt64) {
    add(Message(host: host, content: content), at: now + delay)
  }

  /// Plans the ends and beginnings of hosts, and losses of the engine's logs.
  mutating func planFaults(at step: UInt64, kill: Content, restore: Content) {
    if faults.kills, random.isOne(of: 100) { plan(kill, for: anyHost(), after: step) }
    if faults.losesEntries, random.isOne(of: 300) { plan(restore, for: nil, after: step) }
  }

  /// Asks the engine.
  /// - Parameters:
  ///   - failure: the outcome if no answer comes in time.
  ///   - timeout: for the answer.
  mutating func ask(_ content: Content, orElse failure: Content, after timeout: UInt64, by host: Int) {
    post(content, to: nil, question: expect(orElse: failure, after: timeout, by: host))
  }

  /// Waits for an answer.
  /// - Returns: the number of the question, for the answer.
  mutating func expect(orElse failure: Content, after timeout: UInt64, by host: Int) -> UInt64 {
    questionCount += 1
    questions.insert(questionCount)
    enqueue(failure, to: host, after: timeout, question: questionCount)
    return questionCount
  }

  /// Mostly a millisecond, sometimes seconds.
  private mutating func delay() -> UInt64 {
    if isOrdered { return 1_000_000 }
    return isCalm || !random.isOne(of: 50) ? 500_000 + random.below(1_000_000) : random.below(6 * Self.second)
  }

  /// The next message that arrives before this time; nil: none, and it is that time.
  mutating func next(until end: UInt64) -> Message? {
    while let time = queue.first?.time, time <= end {
      now = max(now, time)
      let message = takeFirst()
      guard let host = message.host, let run = message.run else { return message }
      guard run == runs[host], isAlive(host) else { continue }
      if let question = message.question, questions.remove(question) == nil { continue }
      return message
    }
    now = max(now, end)
    return nil
  }

  private mutating func add(_ message: Message, at time: UInt64) {
    order += 1
    queue.append((time, order, message))
    var child = queue.count - 1
    while child > 0, isBefore(child, (child - 1) / 2) {
      queue.swapAt(child, (child - 1) / 2)
      child = (child - 1) / 2
    }
  }

  /// The queue is a binary heap.
  private mutating func takeFirst() -> Message {
    queue.swapAt(0, queue.count - 1)
    let first = queue.removeLast()
    var parent = 0
    while true {
      var least = parent
      for child in [2 * parent + 1, 2 * parent + 2] where child < queue.count && isBefore(child, least) {
        least = child
      }
      guard least != parent else { return first.message }
      queue.swapAt(parent, least)
      parent = least
    }
  }

  private func isBefore(_ a: Int, _ b: Int) -> Bool {
    (queue[a].time, queue[a].order) < (queue[b].time, queue[b].order)
  }
}
