import Reactive
import StreamProtocol
import StreamRuntime

/// Sending: at the end of a turn, the users with waiting output are served in turns, and each subscription is sent one
/// block of events.
extension Worker {
  /// Maximum bytes that one turn sends before it reads input again.
  private static let turnBytes = 4 << 20
  /// A round of at least this number of writes, with fewer bytes each on average, counts as small writes.
  private static let smallRound = (writes: 64, bytes: 2 << 10)

  /// Performs the actions of a subscription's machine, in order.
  private func perform(_ actions: SubscriptionMachine.Actions, _ subscription: StreamSubscription) {
    perform(actions.first, subscription)
    perform(actions.second, subscription)
    perform(actions.third, subscription)
  }

  /// Performs the action of a subscription's machine.
  func perform(_ action: SubscriptionMachine.Action, _ subscription: StreamSubscription) {
    loop.assertOnLoop()
    switch action {
    case .none, .send: break  // `serve`, which has filled the block, sends it
    case .enqueue: enqueue(subscription)
    case .wait: subscription.lane.wait(subscription)
    case .rest:
      if subscription.phase == .blocked {
        subscription.connection.block(subscription)
        if subscription.machine.format.isBody { remeasure(subscription.lane) }
      } else {
        subscription.extras?.reader?.park(subscription)
      }
      subscription.lane.rest()
    case .moved(let position, let count): subscription.lane.moved(subscription, from: position, past: count)
    case .skipped(let position): subscription.lane.skipped(subscription, from: position)
    case .passed(let position):
      subscription.lane.passed(from: position, by: subscription)
      subscription.lane.skipped(subscription, from: position)
    case .lost(let count): countLost(count, by: subscription.connection.identity, of: subscription.lane.stream)
    case .endState: subscription.lane.endState(of: subscription)
    case .complete: subscription.connection.complete(subscription)
    case .finish:
      guard let completion = subscription.lane.stream.log.read({ _, completion in completion }) else { break }
      subscription.connection.end(subscription, with: completion)
    case .fail(.cutOff(let position)):
      // A part of an event was sent, and the rest was evicted.
      subscription.connection.fail(
        subscription, .init(.eventLost, "lagged: event \(position) left the buffer while it was being sent"))
    case .fail(.lostState):
      subscription.connection.fail(subscription, .lostState(of: subscription.lane.stream.name))
    case .fail(.lagged(let lost)):
      subscription.connection.fail(subscription, .lagged(lost))
    }
  }

  /// Puts a subscription into the queue that is served at the end of the turn, or into the standby list of its
  /// connection.
  private func enqueue(_ subscription: StreamSubscription) {
    loop.assertOnLoop()
    let connection = subscription.connection
    let hasPlace = connection.readyCount < Slices.subscriptions
    subscription.machine.queue(hasPlace: hasPlace)
    guard hasPlace else { return connection.standBy(subscription) }
    connection.readyCount += 1
    let share = connection.share
    share.output.append(subscription)
    guard !share.isInOutputRound else { return }
    share.isInOutputRound = true
    outputRound.append(share)
  }

  /// A subscription of the connection has left the queue: the next one on standby takes its place.
  func leaveQueue(_ connection: Connection) {
    loop.assertOnLoop()
    connection.readyCount -= 1
    while let next = connection.takeStandby() {
      if next.phase == .standby { return enqueue(next) }  // otherwise it has ended meanwhile
    }
  }

  /// - Returns: if there is more to send, the delay in nanoseconds; the loop reads input meanwhile.
  func sendReady() -> UInt64? {
    guard !isPaused, restored.isEmpty else { return nil }
    guard loop.now >= pauseEnd || outputRound.isEmpty else { return pauseEnd - loop.now }
    measureLanes()
    serveUsers()
    measureLanes()  // which may append held events to a log
    return outputRound.isEmpty ? nil : 0
  }

  private func serveUsers() {
    guard !outputRound.isEmpty else { return }
    var (budget, writes) = (Self.turnBytes, 0)
    let start = EventLoop.monotonicNow()
    var now = start
    while budget > 0, now - start < Slices.output, let share = outputRound.popFirst() {
      let sliceEnd = min(start + Slices.output, now + Slices.user)
      while budget > 0, now < sliceEnd, let subscription = share.output.popFirst() {
        guard subscription.machine.take() else { continue }
        leaveQueue(subscription.connection)
        budget -= serve(subscription)
        subscription.extras?.reader?.didServe(subscription)
        writes += 1
        now = EventLoop.monotonicNow()
      }
      share.isInOutputRound = !share.output.isEmpty
      if share.isInOutputRound {
        outputRound.append(share)
      } else if share.output.capacity > 4096 {
        share.output = Fifo()
      }
    }
    pauseAfter(writes, bytes: Self.turnBytes - budget, since: start)
  }

  private func pauseAfter(_ writes: Int, bytes: Int, since start: UInt64) {
    guard writes >= Self.smallRound.writes, bytes < writes * Self.smallRound.bytes else { return }
    let end = EventLoop.monotonicNow()
    pauseEnd = end + min(end - start, Slices.output)  // the round is longer if the thread lost the processor
  }

  private func measureLanes() {
    guard !lanesToMeasure.isEmpty else { return }
    let lanes = lanesToMeasure
    lanesToMeasure = [:]
    for lane in lanes.values { lane.remeasure() }
  }

  private func block(for format: EventFormat) -> EventBlock {
    if let block = blocks[format.encodingIndex] { return block }
    let block = EventBlock()
    blocks[format.encodingIndex] = block
    return block
  }

  /// Serves one subscription.
  /// - Returns: bytes written, at least 1 for the work.
  private func serve(_ subscription: StreamSubscription) -> Int {
    guard subscription.connection.flush() else {
      perform(subscription.machine.socketIsFull(), subscription)
      subscription.lane.endScouting(by: subscription, found: false)
      return 1
    }
    let (format, reader) = (subscription.machine.format, subscription.extras?.reader)
    if let reader {
      guard reader.admit(subscription) else {
        subscription.lane.endScouting(by: subscription, found: false)
        return 1
      }
    } else if format.isNamed, subscription.connection.isWithinEvent(ofOtherThan: subscription) {
      perform(.enqueue, subscription)  // the other one is in the queue, too
      return 1
    }
    guard !format.isMap else {
      let hasEnded = subscription.lane.stream.log.hasEnded
      perform(subscription.machine.found(.nothing, hasEnded: hasEnded), subscription)
      return 1
    }
    let block = block(for: format)
    // No copy of the machine may live longer than this: the next change of its notes would copy them.
    let extras = subscription.extras
    let notes = subscription.machine.notes
    var subscriber = EventBlock.Subscriber(
      before: .init(gap: notes.gap, leftOut: notes.leftOut), request: subscription.request,
      label: format.isNamed || format.hasName ? label(of: subscription) : nil, verdicts: extras?.verdicts,
      isMarkerDue: reader == nil && subscription.machine.isMarkerDue(at: loop.now, after: limits.markerInterval))
    let (finding, hasEnded) = subscription.lane.stream.log.read { storage, completion in
      storage.dropExpired()
      extras?.continueReading(in: storage, from: subscription.cursor.position)
      subscriber.reading = extras?.reading
      subscriber.label?.position?.settle(in: storage, at: subscription.cursor.position)
      let finding =
        subscription.machine.finding(whileAwaitingIn: storage.endPosition)
        ?? block.fill(from: storage, for: subscription.machine, subscriber, subscription.lane.stream.contentVerdicts)
      return (finding, completion != nil)
    }
    let actions = subscription.machine.found(finding, hasEnded: hasEnded)
    guard actions.first == .send else {
      perform(actions, subscription)
      // A member of a pattern may have lost its credit while it waited.
      if actions.first == .rest { subscription.lane.endScouting(by: subscription, found: finding == .events) }
      if format.isBody, actions.first == .wait {
        subscription.connection.speaker?.didSend(subscription, byteCount: 0, isAll: true)
      }
      return 1
    }
    guard !format.isNotice else {
      subscription.connection.speaker?.answer(subscription)
      return 1
    }
    if finding == .events { subscription.lane.endScouting(by: subscription, found: true) }
    return send(block, to: subscription, hasEnded: hasEnded)
  }

  private func label(of subscription: StreamSubscription) -> EventLabel? {
    guard let reader = subscription.extras?.reader else {
      return subscription.connection.speaker?.label(of: subscription)
    }
    reader.clock.measure(reader)
    return EventLabel(name: subscription.lane.stream.name, position: reader.clock.position(for: subscription))
  }

  /// - Returns: bytes written, at least 1 for the work.
  private func send(_ block: EventBlock, to subscription: StreamSubscription, hasEnded: Bool) -> Int {
    let connection = subscription.connection
    let bytes = unsafe block.bytes(coveredBy: subscription.machine.demand.max)
    let sent: Int
    switch unsafe connection.write(bytes) {
    case .wrote(let count): sent = count
    case .gone: return 1
    }
    let progress = block.progress(after: sent)
    let count = progress.written.count
    let actions = subscription.machine.wrote(
      progress.written, isWhole: sent == bytes.count, hasEnded: hasEnded, at: loop.now)
    subscription.lane.counters.count(events: count, bytes: sent)
    counters.eventsOut.add(UInt64(count), ordering: .relaxed)
    counters.bytesOut.add(UInt64(sent), ordering: .relaxed)
    counters.writes.add(1, ordering: .relaxed)
    if sent < bytes.count { unsafe connection.becomeBlocked(keeping: progress.rest) }
    perform(actions, subscription)
    if subscription.machine.format.isBody {
      connection.speaker?.didSend(subscription, byteCount: sent, isAll: actions.contains(.wait))
    }
    return max(1, sent)
  }

  /// Counts and reports events that were evicted before a subscription was sent them.
  func countLost(_ lost: UInt64, by client: ClientIdentity, of stream: ServedStream) {
    loop.assertOnLoop()
    counters.laggedEvents.add(lost, ordering: .relaxed)
    stream.countLagged(lost)
    report(.clientLagged(client, stream: stream.name, lost: lost))
  }
}
