import Glibc
import Locks

// Operators that report the signals passing through.

extension Publishers {
  /// Writes a line for each signal, request and cancellation, and passes all on unchanged.
  public struct Print<Upstream: Publisher>: CompositePublisher {
    /// The text at the start of each line.
    public let prefix: String
    /// Receives the lines; `nil`: standard output.
    public let stream: (any TextOutputStream)?
    /// The implementation.
    public let body: HandleEvents<Upstream>

    /// `upstream.print(prefix, to: stream)`
    public init(upstream: Upstream, prefix: String, to stream: (any TextOutputStream)? = nil) {
      let printer = LinePrinter(prefix: prefix, stream)
      @Sendable func line(_ demand: Subscribers.Demand) -> String {
        demand.max.map { "request max: (\($0))" } ?? "request unlimited"
      }
      var events = HandleEvents(upstream: upstream, receiveRequest: { printer.print(line($0)) })
      events.receiveSubscription = { printer.print("receive subscription: (\($0))") }
      events.receiveOutput = { printer.print("receive value: (\($0))") }
      events.receiveCompletion = { completion in
        switch completion {
        case .finished: printer.print("receive finished")
        case .failure(let error): printer.print("receive error: (\(error))")
        }
      }
      events.receiveCancel = { printer.print("receive cancel") }
      events.receiveReturned = { printer.print(line($0) + " (synchronous)") }
      (self.prefix, self.stream, body) = (prefix, stream, events)
    }
  }

  /// Stops in the debugger when a closure returns true, and passes all signals on unchanged.
  public struct Breakpoint<Upstream: Publisher>: CompositePublisher {
    /// Returns whether to stop when a subscription arrives.
    public let receiveSubscription: (@Sendable (any Subscription) -> Bool)?
    /// Returns whether to stop when a value arrives.
    public let receiveOutput: (@Sendable (Upstream.Output) -> Bool)?
    /// Returns whether to stop when the completion arrives.
    public let receiveCompletion: (@Sendable (Subscribers.Completion<Upstream.Failure>) -> Bool)?
    /// The implementation.
    public let body: HandleEvents<Upstream>

    /// `upstream.breakpoint(…)`. A closure that returns true stops the program.
    @preconcurrency public init(
      upstream: Upstream, receiveSubscription: (@Sendable (any Subscription) -> Bool)? = nil,
      receiveOutput: (@Sendable (Upstream.Output) -> Bool)? = nil,
      receiveCompletion: (@Sendable (Subscribers.Completion<Upstream.Failure>) -> Bool)? = nil
    ) {
      (self.receiveSubscription, self.receiveOutput) = (receiveSubscription, receiveOutput)
      self.receiveCompletion = receiveCompletion
      body = HandleEvents(
        upstream: upstream, receiveSubscription: { if receiveSubscription?($0) == true { raise(SIGTRAP) } },
        receiveOutput: { if receiveOutput?($0) == true { raise(SIGTRAP) } },
        receiveCompletion: { if receiveCompletion?($0) == true { raise(SIGTRAP) } }, receiveRequest: nil)
    }
  }
}

/// Writes lines one at a time, in order, with no lock held: the stream may be foreign code.
private final class LinePrinter: @unchecked Sendable {  // one thread at a time drains the lines
  private let start: String
  private let lines = Locked<[String]>([])
  private let loop = DrainLoop()
  private var stream: (any TextOutputStream)?  // accessed only by the draining thread

  init(prefix: String, _ stream: (any TextOutputStream)?) {
    start = prefix.isEmpty ? "" : prefix + ": "
    self.stream = stream
  }

  func print(_ line: String) {
    lines.withLock { $0.append(start + line) }
    loop.run {
      for line in lines.withLock({ $0.take() }) {
        if stream == nil { Swift.print(line) } else { stream?.write(line + "\n") }
      }
    }
  }
}

extension Publisher {
  /// Writes a line for each signal, request and cancellation. Demand: passed upstream unchanged.
  ///
  /// - Parameters:
  ///   - prefix: Starts each line, followed by a colon unless empty.
  ///   - stream: Receives the lines; default: standard output.
  @inlinable public func print(_ prefix: String = "", to stream: (any TextOutputStream)? = nil)
    -> Publishers.Print<Self>
  {
    .init(upstream: self, prefix: prefix, to: stream)
  }

  /// Raises SIGTRAP when a closure returns true. The signal stops in the debugger; without one it ends the program.
  /// Demand: passed upstream unchanged.
  @preconcurrency @inlinable public func breakpoint(
    receiveSubscription: (@Sendable (any Subscription) -> Bool)? = nil,
    receiveOutput: (@Sendable (Output) -> Bool)? = nil,
    receiveCompletion: (@Sendable (Subscribers.Completion<Failure>) -> Bool)? = nil
  ) -> Publishers.Breakpoint<Self> {
    .init(
      upstream: self, receiveSubscription: receiveSubscription, receiveOutput: receiveOutput,
      receiveCompletion: receiveCompletion)
  }

  /// Raises SIGTRAP when upstream fails. The signal stops in the debugger; without one it ends the program. Demand:
  /// passed upstream unchanged.
  @inlinable public func breakpointOnError() -> Publishers.Breakpoint<Self> {
    breakpoint(receiveCompletion: { if case .failure = $0 { true } else { false } })
  }
}
