import Fleet
import Glibc
import StreamRuntime

@testable import JetStream

/// An engine on a loop of its own, and what it reports.
final class FleetHost: FleetEngineObserver, @unchecked Sendable {  // the engine is used on its loop only
  struct Tail: Equatable {
    var shard: Int
    var sequence: UInt64
    var bytes: [UInt8]
  }

  struct Reports {
    var connections = 0
    var reasons: [String] = []
    var tail: [Tail] = []
    var drops = 0
  }

  private let loop: EventLoop
  private let engine: JetStreamEngine
  private let state = Locked(Reports())

  init(_ options: JetStreamOptions) throws {
    loop = try EventLoop(name: "host")
    engine = JetStreamEngine(options, on: loop)
    engine.start(self)
    try loop.start()
  }

  deinit {
    let (engine, loop) = (Unchecked(value: engine), loop)
    loop.execute {
      engine.value.stop()
      loop.stop()
    }
  }

  var reports: Reports { state.withLock { $0 } }

  func engineConnected() { state.withLock { $0.connections += 1 } }
  func engineDisconnected(_ reason: String) { state.withLock { $0.reasons.append(reason) } }
  func engineDropped() { state.withLock { $0.drops += 1 } }
  func engineAppended(_ entry: [UInt8], to shard: Int, at sequence: UInt64) {
    state.withLock { $0.tail.append(Tail(shard: shard, sequence: sequence, bytes: entry)) }
  }

  /// Waits until the reports are as wanted, for a minute.
  /// - Returns: whether they are.
  @discardableResult func reaches(_ isWanted: (Reports) -> Bool) async -> Bool {
    for _ in 0..<6000 {
      if isWanted(reports) { return true }
      try? await Task.sleep(for: .milliseconds(10))
    }
    return false
  }

  func isConnected(times: Int = 1) async -> Bool { await reaches { $0.connections >= times } }

  /// Calls the engine on its loop, and waits for its answer.
  func answer<Answer>(
    _ call: @escaping @Sendable (JetStreamEngine, @escaping (Answer) -> Void) -> Void
  ) async -> Answer {
    let answer = await withCheckedContinuation { continuation in
      loop.execute { [self] in call(engine) { continuation.resume(returning: Unchecked(value: $0)) } }
    }
    return answer.value
  }

  func append(
    _ entry: [UInt8], isClaim: Bool = false, to shard: Int = 0, after: UInt64
  ) async -> ShardMachine.AppendResult {
    await answer { $0.append(entry, isClaim: isClaim, to: shard, after: after, $1) }
  }

  func read(_ shard: Int = 0, after: UInt64) async -> FleetEntries? {
    await answer { $0.read(shard, after: after, $1) }
  }
  func findClaim(_ shard: Int = 0) async -> FleetClaim? { await answer { $0.findClaim(shard, $1) } }
  func newest(_ shard: Int = 0) async -> FleetNewest? { await answer { $0.newest(shard, $1) } }

  func ask(
    _ message: [UInt8], to subject: FleetSubject, count: Int = 1, timeout: Duration = .seconds(30)
  ) async -> [[UInt8]]? {
    await answer { $0.ask(message, to: subject, count: count, timeout: timeout, $1) }
  }

  func send(_ message: [UInt8], to subject: FleetSubject) {
    loop.execute { [self] in engine.send(message, to: subject) }
  }

  func subscribe(to subject: FleetSubject, _ receive: @escaping @Sendable ([UInt8]) -> [UInt8]?) {
    loop.execute { [self] in engine.subscribe(to: subject, receive) }
  }

  func unsubscribe(from subject: FleetSubject) { loop.execute { [self] in engine.unsubscribe(from: subject) } }

  func answer(_ request: ShardMachine.Request, of shard: Int) async -> ShardMachine.Answer {
    switch request {
    case .append(let bytes, let isClaim, let after, let attempt):
      .append(attempt: attempt, await append(bytes, isClaim: isClaim, to: shard, after: after))
    case .read(let after): .read(after: after, await read(shard, after: after))
    case .findClaim: .findClaim(await findClaim(shard))
    case .gather: .gather([], await newest(shard))
    }
  }

  /// A request to JetStream itself; nil without an answer.
  func request(_ subject: String, _ text: String) async -> String? {
    let answer: NATSMessage? = await answer { engine, done in
      engine.request(subject, Array(text.utf8)) {
        done($0)
        return true
      }
    }
    return answer.map { String(decoding: $0.bytes, as: UTF8.self) }
  }

  /// Sends a message to any subject.
  func publish(_ bytes: [UInt8], to subject: String, reply: String) {
    loop.execute { [self] in engine.publish(bytes, to: subject, reply: reply) }
  }

  /// Keeps the loop busy.
  func block(while isWanted: @escaping @Sendable () -> Bool) {
    loop.execute { while isWanted() { usleep(1000) } }
  }

  func stop() { loop.execute { [self] in engine.stop() } }
}

/// Carries a value between a test and a loop, which use it one after the other.
private struct Unchecked<Value>: @unchecked Sendable {
  let value: Value
}
