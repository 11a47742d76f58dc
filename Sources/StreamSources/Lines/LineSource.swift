import Events
import Reactive
import StreamRuntime

/// Receives the lines or messages of a socket or a serial port, one event of each, and opens it again when it ends.
///
/// Each batch has the events of one turn. Without demand nothing is opened, and what is open is not read, which slows the
/// sender down if it can be; after `restTime` without demand it is closed. The last line of a connection is an event
/// without a line end, too.
public struct LineSource: SourceDriver {
  /// The time without demand after which a connection is closed.
  public static let restTime = Duration.seconds(30)

  fileprivate let configuration: LineConfiguration
  fileprivate let restTime: Duration

  /// - Parameters:
  ///   - configuration: the address or device, and the form of its lines.
  ///   - restTime: for tests.
  public init(_ configuration: LineConfiguration, restTime: Duration = Self.restTime) {
    (self.configuration, self.restTime) = (configuration, restTime)
  }

  /// Makes the subscriptions of one source.
  public func subscriptions(in context: SourceContext) -> SubscriptionMaker {
    let memory = SourceMemory(retry: configuration.retry, run: "the connection")
    return { LineSubscription(self, context, memory, to: $0) }
  }
}

/// A subscription: connects the machine to a port and a splitter.
private final class LineSubscription: SourceSubscription<RestartMachine>, EventLoop.Handler, @unchecked Sendable {
  private let driver: LineSource
  /// Until the connection is made.
  private var connecting: TCPPort?
  private var port: (any LinePort)?
  private var registration: EventLoop.Registration?
  private var interest: EventLoop.Readiness = []
  private var splitter = LineSplitter(maximumBytes: 0)
  private var telnet = TelnetFilter()
  /// Messages that were too long since the last report, whether the last message was, and whether a loss was reported since
  /// the last `complete`.
  private var (dropped, endsWithDropped, isDropping) = (0, false, false)
  /// Whether the last read has not used up what the port holds.
  private var mayHaveMore = true
  /// The texts that are not sent, the first one as far as it is not.
  private var unsent: [ArraySlice<UInt8>] = []
  /// When the last byte came, as far as it was read.
  private var heardAt = Duration.zero
  /// When the demand ended; nil: there is demand.
  private var unwantedSince: Duration?
  /// When the current line had reached `suspectLength`; nil: it has not.
  private var unendedSince: Duration?
  /// Whether that was reported for this connection.
  private var hasReportedUnended = false
  private var alarm: (id: TimerID, due: Duration)?
  private var nextTurn: TimerID?

  /// After this number of bytes and this time a line without an end is reported: the sender may end lines in another way.
  private static let (suspectLength, suspectTime) = (1 << 10, Duration.seconds(1))

  /// Bytes and messages that are read in one turn.
  private static let (shareOfTurn, messagesPerTurn) = (HTTPClient.shareOfTurn, 256)

  private var settings: LineConfiguration { driver.configuration }

  init(
    _ driver: LineSource, _ context: SourceContext, _ memory: SourceMemory<RestartMachine>,
    to down: AnySubscriber<EventBatch, Never>
  ) {
    self.driver = driver
    super.init(context, memory, to: down)
  }

  override func retracted() { advance() }

  override func end() { close() }

  override func advance() {
    guard isLive else { return }
    super.advance()
    guard let port else { return }
    if port.holdsBytes, mayHaveMore, isWanted { readInNextTurn() }
    keepTime()
    watch()
  }

  override func perform(_ action: RestartMachine.Action) { perform(action) { open() } }

  // MARK: Opening and closing

  private func open() {
    guard !thread.isStopped else { return }
    context.progress(.attempted)
    do throws(SourceFailure) {
      switch settings.place {
      case .unix(let path): opened(try DescriptorPort.unix(path, needsMessages: !settings.hasLines))
      case .udp(let address): opened(try DatagramPort(address))
      case .serial(let serial): opened(try SerialPort(serial))
      case .tcp(let host, let number, let tls):
        let tcp = try TCPPort(host: host, port: number, tls: tls, on: thread.loop)
        connecting = tcp
        tcp.connect { [weak self] failure in
          guard let self else { return tcp.close() }
          if let failure { return ended(failure) }
          connecting = nil
          opened(tcp)
        }
      }
    } catch {
      ended(error)
    }
  }

  private func opened(_ port: any LinePort) {
    self.port = port
    (splitter, telnet) = (newSplitter, TelnetFilter())
    unsent = settings.messages.map { Array($0.utf8)[...] }
    (mayHaveMore, heardAt, unwantedSince) = (true, now, nil)
    (unendedSince, hasReportedUnended) = (nil, false)
    report(machine?.answered(at: now))
    send()
    advance()
  }

  private var newSplitter: LineSplitter {
    LineSplitter(maximumBytes: settings.maximumEventBytes, end: settings.lineEnd, dropsLongLines: true)
  }

  private func close() {
    for id in [alarm?.id, nextTurn] { if let id { thread.loop.cancel(id) } }
    (alarm, nextTurn) = (nil, nil)
    if let registration { thread.loop.unregister(registration) }
    (registration, interest) = (nil, [])
    (port as? TCPPort)?.close()
    connecting?.close()
    (port, connecting) = (nil, nil)
  }

  /// - Parameter failure: nil: the other side has ended the connection, or there was no demand.
  private func ended(_ failure: SourceFailure?) {
    close()
    cancelTimer()
    conclude(failure)
  }

  // MARK: Bytes

  private func watch() {
    guard let port else { return }
    var readiness: EventLoop.Readiness = isWanted ? [.readable] : []
    if !unsent.isEmpty { readiness.insert(.writable) }
    guard readiness != interest else { return }
    interest = readiness
    if let registration { thread.loop.unregister(registration) }
    registration = nil
    guard !readiness.isEmpty else { return }
    do throws(SystemError) {
      registration = try thread.loop.register(port.descriptor, for: readiness, handler: self)
    } catch {
      ended(SourceFailure(error.description))
    }
  }

  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    if readiness.contains(.writable) { send() }
    if readiness.contains(.readable), isWanted { read() }
    if isLive { advance() }
  }

  private func readInNextTurn() {
    guard nextTurn == nil else { return }
    nextTurn = thread.loop.schedule(after: .zero) { [weak self] in
      guard let self else { return }
      nextTurn = nil
      if isWanted { read() }
      advance()
    }
  }

  private func send() {
    guard let port else { return }
    do throws(SourceFailure) {
      while let bytes = unsent.first {
        let count = try unsafe bytes.span.withUnsafeBytes { bytes throws(SourceFailure) in
          try unsafe port.write(bytes)
        }
        guard count == bytes.count else {
          unsent[0] = bytes.dropFirst(count)
          return
        }
        unsent.removeFirst()
      }
    } catch {
      ended(error)
    }
  }

  private func read() {
    guard let port else { return }
    var (events, isOver, failure) = (EventBatch(), false, SourceFailure?.none)
    do throws(SourceFailure) {
      isOver = try read(from: port, into: &events)
    } catch {
      (isOver, failure) = (true, error)
    }
    let answers = telnet.takeAnswers()
    if !answers.isEmpty { unsent.append(answers[...]) }
    if isOver, failure == nil, settings.hasLines { try? splitter.end(into: &events) }  // a long line is dropped
    reportLosses(of: port, hasEvents: !events.isEmpty)
    give(events, nil)
    guard isLive, self.port === port else { return }
    if isOver { ended(failure) }
  }

  /// - Returns: whether the other side has ended the connection.
  private func read(from port: any LinePort, into events: inout EventBatch) throws(SourceFailure) -> Bool {
    let size = port.hasMessages ? LineConfiguration.maximumMessageBytes : Self.shareOfTurn
    var failure: SourceFailure?
    var isOver = false
    unsafe withUnsafeTemporaryAllocation(byteCount: size, alignment: 1) { room in
      do throws(SourceFailure) { isOver = try unsafe read(from: port, with: room, into: &events) } catch {
        failure = error
      }
    }
    if let failure { throw failure }
    return isOver
  }

  private func read(
    from port: any LinePort, with room: UnsafeMutableRawBufferPointer, into events: inout EventBatch
  ) throws(SourceFailure) -> Bool {
    var (byteCount, count) = (0, 0)
    mayHaveMore = false
    while byteCount < Self.shareOfTurn, count < Self.messagesPerTurn {
      switch try unsafe port.read(into: room) {
      case .nothing: return false
      case .end: return true
      case .bytes(let size):
        heardAt = now
        context.progress(.received(byteCount: size))
        (byteCount, count) = (byteCount + size, count + 1)
        let bytes = unsafe UnsafeRawBufferPointer(rebasing: room[..<min(size, room.count)])
        if settings.isTelnet {
          var text: [UInt8] = []
          do throws(ContentFault) { try unsafe telnet.filter(bytes, into: &text) } catch {
            throw SourceFailure(error.sentence)
          }
          unsafe text.withUnsafeBytes { unsafe take($0, text.count, into: &events) }
        } else {
          unsafe take(bytes, size, into: &events)
        }
      }
    }
    mayHaveMore = true
    return false
  }

  /// - Parameter size: of a message, more than that of `bytes` if it is larger than the room.
  private func take(_ bytes: UnsafeRawBufferPointer, _ size: Int, into events: inout EventBatch) {
    if settings.hasLines {
      endsWithDropped = size != bytes.count
      guard !endsWithDropped else {
        dropped += 1
        return
      }
      try? unsafe splitter.split(bytes, into: &events)  // a long line is dropped
      if case .udp = settings.place { try? splitter.end(into: &events) }
    } else if size > min(bytes.count, settings.maximumEventBytes) {
      (dropped, endsWithDropped) = (dropped + 1, true)
    } else if size > 0 {
      unsafe events.append(bytes)
      endsWithDropped = false
    }
  }

  private func reportLosses(of port: any LinePort, hasEvents: Bool) {
    let (long, lost) = (dropped + splitter.takeDroppedCount(), port.takeLostCount())
    let what = settings.hasLines ? "line" : "message"
    let limit = SourceFailure.over(settings.maximumEventBytes, what).sentence
    if long > 0 { report(.lost("a \(limit) (max_body)", count: long)) }
    if lost > 0 {
      report(.lost("the system has dropped datagrams, which came faster than they were read", count: lost))
    }
    dropped = 0
    if long > 0 || lost > 0 { isDropping = true }
    // Datagrams that the system has dropped are known with the next one.
    guard isDropping, hasEvents, !endsWithDropped, !splitter.endsWithDroppedLine else { return }
    isDropping = false
    report(.complete)
  }

  // MARK: Times

  /// Ends the connection after too long a silence, or too long without demand.
  private func keepTime() {
    guard port != nil else { return }
    noteUnendedLine()
    if isWanted {
      if unwantedSince != nil { (unwantedSince, heardAt) = (nil, now) }
    } else if unwantedSince == nil {
      unwantedSince = now
    }
    if let unwantedSince {
      guard now < unwantedSince + driver.restTime else { return ended(nil) }
      awake(at: unwantedSince + driver.restTime)
    } else if let limit = settings.idleTimeout {
      guard now < heardAt + limit else { return ended(SourceFailure("no data within \(limit.inWords)")) }
      awake(at: heardAt + limit)
    }
  }

  private func noteUnendedLine() {
    guard settings.hasLines, splitter.unendedByteCount >= Self.suspectLength else {
      unendedSince = nil
      return
    }
    let due = (unendedSince ?? now) + Self.suspectTime
    unendedSince = due - Self.suspectTime
    guard !hasReportedUnended else { return }
    guard now >= due else { return awake(at: due) }
    hasReportedUnended = true
    let hint = splitter.hasCarriageReturn ? "lines that end with CR need end = \"cr\"" : "end says how lines end"
    report(machine?.waits("more than 1 KiB came without a line end: \(hint)"))
  }

  private func awake(at due: Duration) {
    if let alarm {
      guard due < alarm.due else { return }
      thread.loop.cancel(alarm.id)
    }
    let id = thread.loop.schedule(after: due - now) { [weak self] in
      self?.alarm = nil
      self?.advance()
    }
    alarm = (id, due)
  }
}
