import Glibc

// Operators that show what passes by.

extension Publishers {
  /// Writes a line for everything that passes by; nothing else changes.
  public typealias Print<Upstream: Publisher> = Observed<Upstream, OperatorKind.Print>
  /// Stops in the debugger where a closure says so; nothing else changes.
  public typealias Breakpoint<Upstream: Publisher> = Observed<Upstream, OperatorKind.Breakpoint>
}

extension Publishers.Observed where Kind == OperatorKind.Print {
  /// ``Publishers/Print``.
  ///
  /// - Parameters:
  ///   - prefix: Begins each line, followed by a colon unless empty.
  ///   - stream: Where the lines go; `nil`: standard output.
  public init(upstream: Upstream, prefix: String, to stream: (any TextOutputStream)? = nil) {
    let printer = LinePrinter(prefix: prefix, stream)
    func line(_ demand: Subscribers.Demand) -> String {
      demand.max.map { "request max: (\($0))" } ?? "request unlimited"
    }
    self.init(upstream)
    receiveSubscription = { printer.print("receive subscription: (\($0))") }
    receiveOutput = { printer.print("receive value: (\($0))") }
    receiveCompletion = { completion in
      switch completion {
      case .finished: printer.print("receive finished")
      case .failure(let error): printer.print("receive error: (\(error))")
      }
    }
    receiveCancel = { printer.print("receive cancel") }
    receiveRequest = { printer.print(line($0)) }
    receiveReturned = { printer.print(line($0) + " (synchronous)") }
  }
}

extension Publishers.Observed where Kind == OperatorKind.Breakpoint {
  /// ``Publishers/Breakpoint``. The closures say whether to stop.
  public init(
    upstream: Upstream, receiveSubscription: ((any Subscription) -> Bool)? = nil,
    receiveOutput: ((Upstream.Output) -> Bool)? = nil,
    receiveCompletion: ((Subscribers.Completion<Upstream.Failure>) -> Bool)? = nil
  ) {
    self.init(upstream)
    self.receiveSubscription = { if receiveSubscription?($0) == true { raise(SIGTRAP) } }
    self.receiveOutput = { if receiveOutput?($0) == true { raise(SIGTRAP) } }
    self.receiveCompletion = { if receiveCompletion?($0) == true { raise(SIGTRAP) } }
  }
}

/// Writes lines one at a time, in order, with no lock held: a stream may be anybody's code.
private final class LinePrinter {
  private let start: String
  private let lines = Guarded<[String]>([])
  private let loop = DrainLoop()
  private var stream: (any TextOutputStream)?  // touched by the one who is at work in the loop

  init(prefix: String, _ stream: (any TextOutputStream)?) {
    start = prefix.isEmpty ? "" : prefix + ": "
    self.stream = stream
  }

  func print(_ line: String) {
    lines.withLock { $0.append(start + line) }
    loop.run {
      let lines = lines.withLock { lines in
        defer { lines = [] }
        return lines
      }
      for line in lines {
        if stream == nil { Swift.print(line) } else { stream?.write(line + "\n") }
      }
    }
  }
}

extension Publisher {
  /// Writes a line for everything that passes by. Demand: upstream's, value for value.
  ///
  /// - Parameters:
  ///   - prefix: Begins each line, followed by a colon unless empty.
  ///   - stream: Where the lines go; default: standard output.
  @inlinable public func print(_ prefix: String = "", to stream: (any TextOutputStream)? = nil)
    -> Publishers.Print<Self>
  {
    .init(upstream: self, prefix: prefix, to: stream)
  }

  /// Raises SIGTRAP, which stops in the debugger and without one ends the program, where a closure returns true. Demand:
  /// upstream's, value for value.
  @inlinable public func breakpoint(
    receiveSubscription: ((any Subscription) -> Bool)? = nil, receiveOutput: ((Output) -> Bool)? = nil,
    receiveCompletion: ((Subscribers.Completion<Failure>) -> Bool)? = nil
  ) -> Publishers.Breakpoint<Self> {
    .init(
      upstream: self, receiveSubscription: receiveSubscription, receiveOutput: receiveOutput,
      receiveCompletion: receiveCompletion)
  }

  /// Raises SIGTRAP, which stops in the debugger and without one ends the program, upon a failure. Demand: upstream's,
  /// value for value.
  @inlinable public func breakpointOnError() -> Publishers.Breakpoint<Self> {
    breakpoint(receiveCompletion: { if case .failure = $0 { true } else { false } })
  }
}
