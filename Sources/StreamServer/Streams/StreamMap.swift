import MappedLog
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import Synchronization

/// The map of a stream: its regions, one after the other, and the pages on which their readers wait.
///
/// The lock of the stream's log guards the map: each append to the log, on any thread, also publishes to the region. No
/// other writer could see every event before the log evicts it. Readers are woken afterwards, outside of the lock.
///
/// A region's positions are the ids of a log without a hole, and its epoch is the first of these ids. After a hole in
/// the ids, another region begins.
final class StreamMap: LogReader, LogMirror, @unchecked Sendable {  // guarded by the log's lock
  private weak let stream: ServedStream?
  private let name: String
  private let report: @Sendable (ServerReport) -> Void
  /// The present region; nil after a failure, and the next request tries again.
  private var region: MapRegion?
  private var lastGeneration: UInt64 = 0
  /// Whether something was published or marked since readers were last woken.
  private var hasNews = false
  /// The regions that were replaced since then.
  private var former: [MapRegion] = []
  private var failure: SystemError?
  /// The waiting pages by user. The connections of the readers hold them: a page ends with the last of these.
  private var pages: [UInt32: Weak<WaitingPage>] = [:]
  /// Is held by the connections of readers that wait without a page.
  private weak var pageless: Pageless?
  /// Whether present readers may have lost access, so that `change` replaces the region.
  private var isRevoked = false

  /// Maximum number of users that have a waiting page for one stream, because each page takes a descriptor. With more
  /// users, all readers of the stream are woken for each batch.
  static let mostPages = 16

  private struct Weak<Object: AnyObject> {
    weak var object: Object?
  }

  private final class Pageless {}

  init(of stream: ServedStream, report: @escaping @Sendable (ServerReport) -> Void) {
    (self.stream, name, self.report) = (stream, stream.name, report)
  }

  // MARK: From the log

  func logDidGrow(_ log: EventLog) { follow(log) }

  func logDidChange() {
    guard let stream else { return }
    let (regions, pages, wakesAlways, failure) = stream.log.read { _, completion in
      if completion != nil, region?.state == .live {
        region?.end(as: .ended)
        hasNews = true
      }
      return takeNews()
    }
    for region in regions { region.wake(pages, wakesAlways: wakesAlways) }
    if let failure { report(.mapFailed(stream: name, failure)) }
  }

  /// Takes what the caller handles outside of the lock: the regions whose readers it wakes, former regions, which it
  /// thereby releases, and a failure.
  private func takeNews() -> ([MapRegion], [WaitingPage], wakesAlways: Bool, SystemError?) {
    defer { (hasNews, former, failure) = (false, [], nil) }
    guard hasNews else { return ([], [], false, failure) }
    return (former + (region.map { [$0] } ?? []), pages.values.compactMap { $0.object }, pageless != nil, failure)
  }

  // MARK: Under the lock

  /// Publishes the events that the log has and the region has not.
  private func follow(_ log: EventLog) {
    guard let region, region.state == .live else { return }
    hasNews = true
    if region.epoch == log.countedFrom, region.end >= log.firstPosition { return Self.publish(log, to: region) }
    // The events before a hole belong to the former positions.
    if region.end >= log.firstPosition, log.skip(region.end) == region.end,
      log.endOfRun(from: region.end) < log.endPosition
    {
      Self.publish(log, to: region, upTo: log.endOfRun(from: region.end))
    }
    use(makeRegion(for: log))
  }

  private static func publish(_ log: EventLog, to region: MapRegion, upTo end: UInt64? = nil) {
    unsafe region.publish(upTo: end ?? log.endPosition, keeping: log.firstPosition) { unsafe log.record(at: $0) }
  }

  /// Publishes so many parts of what the log has.
  /// - Returns: whether that was all.
  private static func publish(_ log: EventLog, to region: MapRegion, mostParts: Int) -> Bool {
    unsafe region.publish(upTo: log.endPosition, keeping: log.firstPosition, mostParts: mostParts) {
      unsafe log.record(at: $0)
    }
    return region.end == log.endPosition
  }

  /// Replaces the region; nil: there is no other one.
  private func use(_ new: MapRegion?) {
    if let region {
      region.end(as: .replaced)
      former.append(region)
    }
    hasNews = true
    region = new
  }

  /// Creates a region with the events of a log after its hole. Its generation is above that of any earlier region, also
  /// in another process, because it is at least the time in microseconds.
  /// - Returns: nil after recording the failure.
  private func makeRegion(for log: EventLog) -> MapRegion? {
    do throws(SystemError) {
      let new = try Outline(log, after: lastGeneration).region(named: name)
      Self.publish(log, to: new)
      lastGeneration = new.generation
      return new
    } catch {
      failure = error
      return nil
    }
  }

  /// The properties of a log that determine its region.
  private struct Outline {
    let log: EventLog
    let limits: EventLog.Limits
    let epoch, position: UInt64
    let formerGeneration: UInt64

    init(_ log: EventLog, after generation: UInt64) {
      (self.log, limits, formerGeneration) = (log, log.limits, generation)
      (epoch, position) = (log.countedFrom, max(log.firstPosition, log.countedFrom))
    }

    /// An empty region.
    func region(named name: String) throws(SystemError) -> MapRegion {
      try MapRegion(
        name: name, events: limits.events, bytes: limits.bytes,
        generation: max(formerGeneration + 1, EventLoop.wallClock()), epoch: epoch, position: position)
    }
  }

  // MARK: After a failure

  private enum Step { case complete, partial, obsolete }

  /// Makes a region if a failure has left none.
  ///
  /// The log's lock is held for one part of its events at a time: others append meanwhile, and loops read.
  func renew(from shared: SharedLog<EventLog, StreamFailure>) {
    // A writer that always evicts what is to be copied next does not prevent the last attempt, which is one step.
    for mostParts in [1, 1, Int.max] {
      guard let outline = shared.read({ log, _ in region == nil ? Outline(log, after: lastGeneration) : nil })
      else { return }
      let new: MapRegion
      do throws(SystemError) {
        new = try outline.region(named: name)
      } catch {
        shared.read { _, _ in failure = error }
        break
      }
      var step = Step.partial
      while step == .partial { step = shared.read { log, _ in fill(new, outline, from: log, mostParts: mostParts) } }
      if step == .complete { break }
    }
    logDidChange()
  }

  /// Copies further events, and uses the region once it has all.
  private func fill(_ new: MapRegion, _ outline: Outline, from log: EventLog, mostParts: Int) -> Step {
    guard region == nil, log === outline.log, lastGeneration == outline.formerGeneration,
      log.countedFrom == outline.epoch, new.end >= log.firstPosition
    else { return .obsolete }
    guard Self.publish(log, to: new, mostParts: mostParts) else { return .partial }
    lastGeneration = new.generation
    use(new)
    return .complete
  }

  // MARK: Readers

  /// The answer to a reader's request.
  struct Opened {
    let region: MapRegion
    let page: WaitingPage?
    /// The daemon wakes the reader as long as its connection holds this.
    let hold: AnyObject
    /// The position at which the reader begins.
    let position: UInt64
    /// The number of events between the id from which the reader resumes and `position`; nil: unknown.
    let missed: UInt64?
  }

  /// - Parameters:
  ///   - replay: the stream's `replay`.
  ///   - user: the reader's user.
  /// - Returns: nil if there is no region: see `renew`.
  func open(
    _ log: EventLog, from start: SubscribeOptions.Start, replay: Int, for user: UInt32
  ) throws(SubscribeOptions.Malformed) -> Opened? {
    let wanted = try start.position(in: log, replay: replay)
    follow(log)
    guard let region else { return nil }
    let position = min(max(wanted, region.first), region.end)
    let missed: UInt64? =
      if case .after(let id) = start { log.missedEvents(from: id + 1, to: position) } else { 0 }
    let (page, hold) = page(of: user)
    return Opened(region: region, page: page, hold: hold, position: position, missed: missed)
  }

  private func page(of user: UInt32) -> (WaitingPage?, hold: AnyObject) {
    if let page = pages[user]?.object { return (page, page) }
    pages = pages.filter { $0.value.object != nil }
    if pages.count < Self.mostPages, let new = try? WaitingPage(name: name) {
      pages[user] = Weak(object: new)
      return (new, new)
    }
    let hold = pageless ?? Pageless()
    pageless = hold
    return (nil, hold)
  }

  /// The generation of the present region; nil: there is none.
  var generation: UInt64? { region?.generation }

  /// Marks the region as one to replace, because the access to the stream has changed. `change` makes another one.
  func revoke() { isRevoked = true }

  /// The generation of the last region; 0: there was none.
  var newestGeneration: UInt64 { lastGeneration }

  /// Replaces the region if another process has reached its generation, as it may after the clock was set back.
  func raise(over generation: UInt64, _ log: EventLog) {
    guard generation >= lastGeneration else { return }
    lastGeneration = generation
    use(makeRegion(for: log))
  }

  /// Ends the region, because no event follows in this process.
  func end(_ log: EventLog) {
    follow(log)
    use(nil)
  }

  // MARK: Changes

  /// Continues with a log that does not change during the call. The present one, `former`, has all of its events.
  func change(from former: EventLog, to log: EventLog, of shared: SharedLog<EventLog, StreamFailure>) {
    let (isUsable, generation) = shared.read { _, _ in (!isRevoked && region?.state == .live, lastGeneration) }
    if isUsable, former === log { return }
    // Made outside of the lock, because it copies the events.
    let new = Result { () throws(SystemError) in
      let new = try Outline(log, after: generation).region(named: name)
      Self.publish(log, to: new)
      return new
    }
    shared.read { _, _ in
      follow(former)
      former.mirror = nil
      log.mirror = self
      isRevoked = false
      switch new {
      case .success(let new) where lastGeneration == generation:
        lastGeneration = new.generation
        use(new)
      case .success: use(makeRegion(for: log))  // a request has made one meanwhile, with a higher generation
      case .failure(let error):
        failure = error
        use(nil)
      }
    }
    logDidChange()
  }
}
