import FoundationEssentials
import Glibc
import Reactive
import StreamClient
import StreamRuntime
import Synchronization
import TestSupport

/// Runs the program to its end.
/// - Parameter environment: `NAME=value`, on top of the tests' own.
func run(
  _ arguments: [String], environment: [String] = []
) async throws -> (status: CInt, output: String, errors: String) {
  let process = try ChildProcess("env", environment + [ChildProcess.built("streamd")] + arguments)
  let output = await process.text(of: process.output)
  let errors = await process.text(of: process.errors)
  return (await process.end(), output, errors)
}

/// A daemon with a log, which a thread of its own writes: an entry may come after what it tells.
protocol LoggingDaemon {
  /// Its log so far.
  var log: String { get }
}

extension LoggingDaemon {
  /// Waits until its log has the text.
  /// - Returns: whether it has.
  func logs(_ text: String) async throws -> Bool {
    try await eventually { log.contains(text) }
  }
}

/// A daemon of its own with a stream `ticks`, serving once `init` returns.
final class DaemonProcess: LoggingDaemon, Sendable {
  private let folder: TemporaryFolder
  private let process: ChildProcess
  var socket: String { folder.path("s") }
  var log: String { (try? String(contentsOfFile: folder.path("log"), encoding: .utf8)) ?? "" }

  /// Its configuration.
  var file: String { folder.path("streamd.toml") }

  /// - Parameters:
  ///   - configuration: begins in the table of `ticks`.
  ///   - server: keys of `[server]`.
  ///   - environment: `NAME=value`, on top of the tests' own; behind them maybe a command that runs the program.
  init(_ configuration: String, server: String = "", environment: [String] = []) async throws {
    folder = try TemporaryFolder()
    let text = """
      [server]
      socket = "\(folder.path("s"))"
      \(server)
      [streams.ticks]
      timer = { every = "20ms" }
      \(configuration)
      """
    try folder.write(Array(text.utf8), to: "streamd.toml")
    process = try ChildProcess(
      "env", environment + [ChildProcess.built("streamd"), "--config", folder.path("streamd.toml")],
      errors: .file(folder.path("log")))
    guard try await logs(" serves ") else { throw SystemError("streamd", log, code: ETIMEDOUT) }
  }

  deinit { process.signal(SIGKILL) }

  func signal(_ number: CInt) { process.signal(number) }

  /// The id of the process; behind a command that runs the program, that of the command.
  var id: pid_t { process.id }

  /// SIGTERM.
  /// - Returns: the exit status.
  func stop() async -> CInt {
    process.signal(SIGTERM)
    return await process.end()
  }
}

/// A subscriber that requests exactly what a test sets.
final class CreditProbe: Subscriber, Sendable {
  typealias Input = StreamEvent
  typealias Failure = StreamError

  private let subscription = Mutex<Box?>(nil)
  private let events = AsyncStream.makeStream(of: StreamEvent.self)
  private struct Box: @unchecked Sendable {  // a subscription may be called from any thread
    let subscription: any Subscription
  }

  func receive(subscription: any Subscription) {
    let box = Box(subscription: subscription)
    self.subscription.withLock { $0 = box }
  }

  func receive(_ input: StreamEvent) -> Subscribers.Demand {
    events.continuation.yield(input)
    return .none
  }

  func receive(completion: Subscribers.Completion<StreamError>) { events.continuation.finish() }

  func request(_ count: Int) {
    subscription.withLock { $0 }?.subscription.request(.max(count))
  }

  func next() async -> StreamEvent {
    var iterator = events.stream.makeAsyncIterator()
    return await iterator.next() ?? StreamEvent(id: nil, time: nil, data: [])
  }
}
