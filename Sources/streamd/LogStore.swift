import Dispatch
import Glibc
import ReplayLog
import StreamRuntime
import StreamServer
import Synchronization
import Systemd

/// The logs of the configured streams, restored from an earlier process or new. Each is stored where the stream's
/// `keep` says. A log that cannot be stored there is in memory, which the journal reports.
///
/// Confined to one thread at a time.
final class LogStore {
  /// A stream's log, and where its events are.
  struct StoredLog {
    let log: EventLog
    var storage: StreamStorage
  }

  /// Events of a stream are not written to the disk any more.
  struct Loss: Sendable {
    let stream: String
    let reason: String
    /// The region of the log that is meant.
    fileprivate let region: MappedRegion
  }

  private final class Listener: Sendable {
    let notWritten = Mutex<(@Sendable (_ loss: Loss) -> Void)?>(nil)
    let lacksMemory = Mutex<(@Sendable () -> Void)?>(nil)
  }

  /// A log that the service manager stores.
  private struct Held {
    /// The service manager's name; nil: it is in a shared region.
    let name: String?
    let remains: LogRemains
  }

  private let manager: ServiceManager
  private let journal: Journal
  private let folder: LogFolder
  private let listener = Listener()
  /// Notifies the service manager that logs are being read or written, which may exceed its timeout.
  private let progress: () -> Void
  /// Whether the daemon may examine files of streams that are not kept on disk.
  private let isOwnFolder: Bool
  private var held: [String: Held] = [:]
  /// The number of the service manager's descriptors that are logs. Thread-safe.
  var storedCount: Int { heldCount.load(ordering: .relaxed) }
  private let heldCount = Atomic(0)
  private let small: SmallLogs
  /// Discards logs in shared memory, once the service manager has received those that continue them.
  private var superseded: [() -> Void] = []
  /// The service manager's names of shared regions that are not used on: until `finish`, their logs are copied.
  private var formerRegions: [String] = []
  private var nextNumber = 0
  private var notHeld: [String] = []
  /// The service manager's name of each stream's log.
  private var storedNames: [String: String] = [:]
  /// Whether the service manager may not have received every log that was sent to it.
  private var isStoring = false
  /// Whether the service manager has left messages unread for `storeTime` since the last `finish`.
  private var isManagerLate = false
  private var filed: [String: EventLog] = [:]
  /// All logs in use.
  private var logs: [String: EventLog] = [:]
  /// Since the last `finish`: streams that a reload has stored on disk again, and those that are not on disk, by the reason.
  private var storedAgain: [String] = []
  private var notOnDisk: [(reason: String, streams: [String])] = []

  private static let namePrefix = "log-"
  /// The streams that one entry names.
  private static let listedCount = 10
  /// Descriptors of the service manager's store that are reserved for other uses than logs.
  static let reservedDescriptors = 16
  /// Maximum time to read, check or write a part of a log. Writing a new log to the disk takes longest.
  private static let workTime = Duration.seconds(120)
  /// Maximum time to wait until the service manager has received a log.
  private static let storeTime = Duration.seconds(1)

  /// - Parameter stored: the service manager's descriptors. All are taken; unusable ones are removed from the manager.
  init(
    _ server: Configuration.Server, stored: [PassedDescriptors.Stored], manager: ServiceManager, journal: Journal
  ) {
    self.manager = manager
    self.journal = journal
    small = SmallLogs(journal: journal) { [listener] in listener.lacksMemory.withLock { $0 }?() }
    let own = Self.ownFolder(server)
    isOwnFolder = own != nil
    let progress = Self.progress(to: manager)
    self.progress = progress
    folder = LogFolder(
      path: own ?? Configuration.Server.standardState,
      boot: Self.variable("STREAMD_BOOT_ID").flatMap { BootID($0) } ?? BootID.current(), progress: progress,
      report: { journal.write(.stateNotKept, .warning, $0) }
    ) { [listener] stream, reason, region in
      journal.write(.stateNotKept, .error, "events not written to disk: \(reason)", .stream(stream))
      guard let region else { return }
      listener.notWritten.withLock { $0 }?(Loss(stream: stream, reason: reason, region: region))
    }
    for stored in stored { take(stored) }
  }

  /// The path of the state directory.
  var folderPath: String { folder.path }

  /// - Parameters:
  ///   - notWritten: called from now on, on any thread, when events of a stream are not written to disk any more.
  ///   - lacksMemory: called from now on, on any thread, when a small log could not grow: it must not block.
  func listen(
    _ notWritten: @escaping @Sendable (_ loss: Loss) -> Void, lacksMemory: @escaping @Sendable () -> Void
  ) {
    listener.notWritten.withLock { $0 = notWritten }
    listener.lacksMemory.withLock { $0 = lacksMemory }
  }

  /// The memory of small logs.
  var smallLogs: LogBudget { small.budget }

  /// Whether the stream still uses the log that a loss is about: a reload may have replaced it since.
  func isPresent(_ loss: Loss) -> Bool { logs[loss.stream]?.isStored(in: loss.region) ?? false }

  /// Locks the state directory, if streams need it.
  /// - Throws: `FolderInUse` if another daemon uses it. Other errors affect single streams, whose events are then in
  ///   memory.
  func lockFolder(for streams: [Configuration.Stream]) throws(FolderInUse) {
    guard isOwnFolder || streams.contains(where: { $0.keep == .disk }) else { return }
    do throws(LogRefusal) {
      try folder.enter()
    } catch  where error.remedy == .wait {
      throw FolderInUse(description: "\(folder.path) is the state directory of another daemon: \(error)")
    } catch {}
  }

  /// The state directory belongs to another daemon.
  struct FolderInUse: Error, CustomStringConvertible {
    let description: String
  }

  /// A function that extends the service manager's timeout, at most once a second.
  private static func progress(to manager: ServiceManager) -> () -> Void {
    var next = EventLoop.monotonicNow() + 1_000_000_000
    return {
      let now = EventLoop.monotonicNow()
      guard now >= next else { return }
      next = now + 1_000_000_000
      manager.notify(.extendTimeout(workTime))
    }
  }

  // MARK: Logs stored in the service manager

  private func take(_ stored: PassedDescriptors.Stored) {
    guard stored.name.hasPrefix(Self.namePrefix), let number = Int(stored.name.dropFirst(Self.namePrefix.count)),
      (0..<1 << 32).contains(number)
    else {
      Glibc.close(stored.descriptor)
      return manager.removeStored(stored.name)
    }
    nextNumber = max(nextNumber, number + 1)
    heldCount.add(1, ordering: .relaxed)
    do {
      guard SharedRegion.isShared(stored.descriptor) else {
        return take(Held(name: stored.name, remains: try LogRemains(memory: stored.descriptor, progress: progress)))
      }
      let isFormer = small.isStored
      for log in try small.adopt(stored.descriptor, progress: progress) { take(Held(name: nil, remains: log)) }
      if isFormer { formerRegions.append(stored.name) }
    } catch {
      guard error.remedy == .replace else {
        return journal.write(
          .stateLost, .warning,
          "stored descriptor \(stored.name) is not used and stays stored: \(error)")
      }
      journal.write(.stateLost, .warning, "the stored descriptor of a stream could not be reused: \(error)")
      heldCount.subtract(1, ordering: .relaxed)
      manager.removeStored(stored.name)
    }
  }

  /// A stream has two logs if the daemon was killed while replacing one by the other.
  private func take(_ new: Held) {
    guard let old = held.updateValue(new, forKey: new.remains.stream) else { return }
    let isOldBetter = old.remains.endPosition > new.remains.endPosition
    if isOldBetter { held[new.remains.stream] = old }
    release(isOldBetter ? new : old)
  }

  private func release(_ held: Held?) {
    release(stored: held?.name)
    held?.remains.discard()
  }

  /// The shared region of a stream's log; nil: the log has memory of its own.
  private func region(for stream: Configuration.Stream, _ limits: EventLog.Limits) -> SharedRegion? {
    small.region(for: stream, limits) { manager.storeLimit > 0 && hold($0) != nil }
  }

  /// - Parameter former: the name of the log that this one replaces. It is released next, so its descriptor counts as
  ///   free.
  private func hold(_ log: EventLog, of stream: String, inPlaceOf former: String? = nil) {
    guard manager.storeLimit > 0 else { return }
    guard !small.keeps(log) else { return }
    storedNames[stream] = log.descriptor < 0 ? nil : hold(log.descriptor, inPlaceOf: former)
    if storedNames[stream] == nil { notHeld.append(stream) }
  }

  /// - Returns: the service manager's name; nil: it stores no more.
  private func hold(_ descriptor: CInt, inPlaceOf former: String? = nil) -> String? {
    guard storedCount - (former == nil ? 0 : 1) + Self.reservedDescriptors < manager.storeLimit else { return nil }
    let name = "\(Self.namePrefix)\(nextNumber)"
    manager.store(descriptor, as: name)
    nextNumber += 1
    heldCount.add(1, ordering: .relaxed)
    isStoring = true
    return name
  }

  /// Waits until the service manager has received the logs that were sent to it. Until then, a kill loses events that
  /// are only in such a log: none may be appended to it, and the file that it replaces must not be removed.
  ///
  /// - Returns: false if the manager is late. Later calls then do not wait, until `finish`.
  @discardableResult private func confirm() -> Bool {
    if isStoring { isStoring = !manager.flush(within: isManagerLate ? .zero : Self.storeTime) }
    guard !isStoring else {
      isManagerLate = true
      return false
    }
    superseded.forEach { $0() }
    superseded = []
    return true
  }

  /// The log of a stream continues in another one, which the service manager receives first if it is to keep that.
  private func supersede(_ discard: @escaping () -> Void, of stream: String) {
    if storedNames[stream] == nil { discard() } else { superseded.append(discard) }
  }

  /// Returns when the logs that were made may be used: the service manager has received them, unless it is late, and the
  /// disk has their ids. A kill would otherwise lose events, or the next log of a stream could assign the same ids.
  func secure() {
    confirm()
    folder.flushIDs()
  }

  private func release(stored name: String?) {
    guard let name else { return }
    heldCount.subtract(1, ordering: .relaxed)
    manager.removeStored(name)
  }

  /// Releases logs without a stream, and reports which logs are not kept. Called after the last stream of a start or
  /// reload.
  func finish() {
    folder.releaseFormer()
    for held in held.values { release(held) }
    held = [:]
    for name in formerRegions { release(stored: name) }
    formerRegions = []
    secure()
    if isManagerLate {
      isManagerLate = false
      journal.write(
        .stateNotKept, .warning,
        "a kill may lose events: the service manager has not received all logs within \(Self.storeTime.inUnits)")
    }
    for (reason, streams) in notOnDisk {
      report(
        .stateNotKept, .error, streams, "stored in memory, not on disk: \(folder.path): \(reason)",
        rest: "; $streams has a message for each")
    }
    report(.stateKept, .notice, storedAgain, "stored on disk again")
    (notOnDisk, storedAgain) = ([], [])
    guard !notHeld.isEmpty else { return }
    defer { notHeld = [] }
    journal.write(
      .stateNotKept, .warning,
      "the events of \(counted(notHeld.count, "stream")) will not survive the daemon: the service manager stores at most "
        + "\(manager.storeLimit) descriptors (FileDescriptorStoreMax=): \(Self.listed(notHeld))")
  }

  /// Whether `finish` has something to report.
  var hasReports: Bool { isManagerLate || !notHeld.isEmpty || !notOnDisk.isEmpty }

  /// Many streams have one entry: the journal's limit would suppress theirs.
  /// - Parameter rest: where the names are that the entry leaves out.
  private func report(
    _ id: MessageID, _ priority: Journal.Priority, _ streams: [String], _ what: String, rest: String = ""
  ) {
    guard streams.count > Self.listedCount else {
      return streams.forEach { journal.write(id, priority, "events are \(what)", .stream($0)) }
    }
    journal.write(id, priority, "events of \(streams.count) streams are \(what): \(Self.listed(streams))\(rest)")
  }

  private static func listed(_ names: [String]) -> String {
    names.prefix(listedCount).joined(separator: ", ") + (names.count > listedCount ? ", …" : "")
  }

  // MARK: A stream's log

  /// - Throws: `SystemError` when there is no memory for it.
  func log(of stream: Configuration.Stream) throws(SystemError) -> StoredLog {
    folder.setSharesIDs(stream.template != nil, stream.name)
    let kept = try findLog(of: stream)
    use(kept.log, for: stream)
    return kept
  }

  /// - Parameter other: the log whose events it takes over; nil: it starts empty.
  private func inMemory(
    _ stream: Configuration.Stream, _ limits: EventLog.Limits, takingOver other: EventLog? = nil
  ) -> EventLog? {
    let name = stream.name
    if let region = region(for: stream, limits),
      let log = other.map({ EventLog(in: region, name: name, limits: limits, takingOver: $0) })
        ?? EventLog(in: region, name: name, limits: limits, firstID: folder.firstID(of: name))
    {
      return log
    }
    return other.map { EventLog(name: name, limits: limits, takingOver: $0) } ?? fresh(stream, limits)
  }

  private func use(_ log: EventLog, for stream: Configuration.Stream) {
    logs[stream.name] = log
    folder.rememberIDs(of: log, stream.name)
  }

  /// The streams of which the service manager, or a file, has a log that no stream uses yet.
  var unusedNames: [String] { (held.keys + folder.streamNames.filter { logs[$0] == nil }).sorted() }

  private func settleIDs(of stream: String) {
    if let log = logs.removeValue(forKey: stream) {
      folder.settleIDs(of: stream, at: log.nextOwnID)
      log.discard()
    }
    folder.setSharesIDs(false, stream)
  }

  /// Releases the log of a stream that is forgotten. Its file is removed.
  func discard(_ stream: String) {
    release(stored: storedNames.removeValue(forKey: stream))
    settleIDs(of: stream)
    guard let file = filed.removeValue(forKey: stream) else { return folder.removeLeft(stream) }
    file.close()
    folder.remove(stream)
  }

  /// Whether the log of a new stream with a template's configuration needs no wait: it is in shared memory that the service
  /// manager has received, and the disk has the bound of its ids.
  func makesAtOnce(_ stream: Configuration.Stream) -> Bool {
    let limits = EventLog.Limits(stream)
    return held.isEmpty && smallLogs.hasRoom && region(for: stream, limits) != nil && !isStoring
      && folder.hasBoundOfSharedIDs
  }

  /// Restores or creates a stream's log.
  private func findLog(of stream: Configuration.Stream) throws(SystemError) -> StoredLog {
    let limits = EventLog.Limits(stream)
    var held = held.removeValue(forKey: stream.name)
    var file: LogRemains?
    var refusal: LogRefusal?
    if stream.keep == .disk || isOwnFolder && folder.mayHaveFile(of: stream.name) {
      do { file = try folder.remains(of: stream.name) } catch { refusal = error }
    }
    if stream.share == .fleet {
      if file?.followsFleet == false { (file, refusal) = (nil, .ownIDs) }
      if let own = held, !own.remains.followsFleet {
        journal.write(.stateLost, .warning, "the stream starts anew: \(LogRefusal.ownIDs)", .stream(stream.name))
        release(own)
        held = nil
      }
    }
    guard stream.keep != .no else {
      release(held)
      if let file { folder.remove(stream.name, replacing: file) }
      return StoredLog(log: try made(inMemory(stream, limits), stream.name), storage: .memory)
    }
    // The log with the newest event was in use last. A superseded file is older than its replacement.
    let isFileNewer =
      file.map { file in
        let end = held?.remains.endPosition ?? 0
        return file.isSalvaged ? file.eventsEnd > end : file.endPosition >= end
      } ?? false
    if isFork(file, held, isFileNewer: isFileNewer) { (file, refusal) = (nil, .fork) }
    if stream.keep == .disk {
      do throws(LogRefusal) {
        let log = try logInFile(of: stream, limits, file, isFileNewer ? nil : held?.remains, refusal)
        release(held)
        filed[stream.name] = log
        return StoredLog(log: log, storage: .disk)
      } catch {
        refusal = error
        noteNotOnDisk(stream.name, error)
      }
    } else if refusal == .fork {
      do { try setAside(stream.name, .fork) } catch {}
    }
    let best = isFileNewer ? file : held?.remains
    let log: EventLog
    if let held, !isFileNewer, held.remains.fits(limits), held.remains.isStored(in: region(for: stream, limits)) {
      log = held.remains.log(limits: limits)
      storedNames[stream.name] = held.name
    } else {
      log = try made(inMemory(stream, limits, takingOver: best?.log()), stream.name)
      hold(log, of: stream.name, inPlaceOf: held?.name)
      release(stored: held?.name)
      if let remains = held?.remains { supersede(remains.discard, of: stream.name) }
    }
    if let file { leave(file, of: stream) }
    return StoredLog(log: log, storage: Self.storage(of: stream, refusal))
  }

  /// Where the events of a stream are whose log is in memory.
  /// - Parameter refusal: why the log is in no file, if it should be in one.
  private static func storage(of stream: Configuration.Stream, _ refusal: LogRefusal?) -> StreamStorage {
    guard stream.keep == .disk, let refusal else { return .memory }
    return .notOnDisk(reason: "\(refusal)")
  }

  /// Another log continues the one in a file.
  private func leave(_ file: LogRemains, of stream: Configuration.Stream) {
    if stream.keep != .disk, confirm() {
      folder.remove(stream.name, replacing: file)
    } else {
      folder.leaveBehind(file)
    }
  }

  /// Whether the file is older than the service manager's log, but was continued by another process. Reports events that only the
  /// service manager's log has, if that is the older one.
  private func isFork(_ file: LogRemains?, _ held: Held?, isFileNewer: Bool) -> Bool {
    guard let file, let held = held?.remains else { return false }
    guard isFileNewer else { return file.hasEvents(lackedBy: held) }
    if held.hasEvents(lackedBy: file) {
      journal.write(
        .stateLost, .warning,
        "\(counted(Int(clamping: held.count), "event")) that the service manager stored are not used: another process has "
          + "continued the log file, which is newer", .stream(file.stream))
    }
    return false
  }

  /// Begins a reload.
  /// - Returns: the streams whose logs are not in the file where `keep` wants them, and may be now: the file could not be
  ///   made, or has lost its name.
  func displaced(among streams: [Configuration.Stream]) -> Set<String> {
    folder.forgetRefusal()
    let names = streams.filter { $0.keep == .disk }.map(\.name).filter { filed[$0] == nil || !folder.hasFile(of: $0) }
    // Locked before the streams' logs are frozen, because another process may take a second to release its lock.
    if !names.isEmpty { _ = try? folder.enter() }
    return Set(names)
  }

  /// A stream of which `displaced` was true has its log in a file.
  func noteStoredAgain(_ stream: String) { storedAgain.append(stream) }

  /// The log of a stream that needs another one, as `ConfigurationDifference.Change.hasOtherLog` says, or that is
  /// displaced. It has the events that fit, with their ids, but none if the stream was not shared with other hosts and now is.
  ///
  /// - Parameter old: the stream's log so far; it must not change during the call.
  /// - Throws: `SystemError` when there is no memory for it; nothing has changed then.
  func log(of stream: Configuration.Stream, insteadOf old: EventLog) throws(SystemError) -> StoredLog {
    let kept = try makeLog(of: stream, insteadOf: old)
    use(kept.log, for: stream)
    return kept
  }

  private func makeLog(of stream: Configuration.Stream, insteadOf old: EventLog) throws(SystemError) -> StoredLog {
    let (name, limits) = (stream.name, EventLog.Limits(stream))
    var refusal: LogRefusal?
    let startsAnew = stream.share == .fleet && !old.followsFleet
    if startsAnew { journal.write(.stateLost, .warning, "the stream starts anew: \(LogRefusal.ownIDs)", .stream(name)) }
    if stream.keep == .disk {
      do throws(LogRefusal) {
        if folder.hasForeignFile(of: name) { try setAsideUnusableFile(of: name) }
        let isInPlace = folder.hasFile(of: name)
        let log = try folder.makeLog(
          of: name, limits: limits, takingOver: startsAnew ? nil : old, followsFleet: stream.share == .fleet)
        // The former file is elsewhere, and a later process may find it there.
        if !isInPlace { filed[name]?.leaveBehind() }
        release(stored: storedNames.removeValue(forKey: name))
        old.discard()
        filed[name] = log
        return StoredLog(log: log, storage: .disk)
      } catch {
        refusal = error
        noteNotOnDisk(name, error)
      }
    }
    let isFiled = filed[name] != nil
    let isInPlace = old.limits == limits && old.isStored(in: region(for: stream, limits))
    let stays = !isFiled && isInPlace && !startsAnew
    let log = try made(stays ? old : inMemory(stream, limits, takingOver: startsAnew ? nil : old), name)
    let storedName = storedNames.removeValue(forKey: name)
    if stays, stream.keep != .no, storedName != nil {
      storedNames[name] = storedName
    } else {
      if stream.keep != .no { hold(log, of: name, inPlaceOf: storedName) }
      release(stored: storedName)
    }
    if !stays { supersede(old.discard, of: name) }
    let replacesFile = stream.keep == .no || confirm() && stream.keep == .memory
    if replacesFile {
      if isFiled || folder.hasLeftFile(of: name) { folder.remove(name) }
      filed[name] = nil
    } else if let file = filed.removeValue(forKey: name) {
      folder.leaveBehind(file, of: name)
    }
    return StoredLog(log: log, storage: Self.storage(of: stream, refusal))
  }

  /// Releases the log of a stream that is no longer served. A file keeps its content.
  func forget(_ stream: String) {
    release(stored: storedNames.removeValue(forKey: stream))
    settleIDs(of: stream)
    guard let file = filed.removeValue(forKey: stream) else { return }
    file.close()
    folder.leave(stream)
  }

  private func noteNotOnDisk(_ stream: String, _ refusal: LogRefusal) {
    if let index = notOnDisk.firstIndex(where: { $0.reason == refusal.description }) {
      notOnDisk[index].streams.append(stream)
    } else {
      notOnDisk.append((refusal.description, [stream]))
    }
  }

  /// - Parameters:
  ///   - newer: a log that replaces the file's content; nil: the file has the newest events.
  ///   - refusal: why the existing file cannot be restored.
  private func logInFile(
    of stream: Configuration.Stream, _ limits: EventLog.Limits, _ file: LogRemains?, _ newer: LogRemains?,
    _ refusal: LogRefusal?
  ) throws(LogRefusal) -> EventLog {
    if let refusal { try setAside(stream.name, refusal, effect: newer == nil ? ", the stream starts anew" : "") }
    if let file, newer == nil, file.isSalvaged {
      journal.write(
        .stateCutOff, .notice,
        "the log file had lost its end, as after a power failure: \(file.count) events remain"
          + (file.endPosition > file.eventsEnd ? ", ids continue after a gap" : ""), .stream(stream.name))
    }
    if let file, newer == nil, file.fits(limits) { return try folder.log(of: file, limits: limits) }
    return try folder.makeLog(
      of: stream.name, limits: limits, takingOver: (newer ?? file)?.log(), replacing: file,
      followsFleet: stream.share == .fleet)
  }

  /// Renames a file that no process of this version has written, before a log in use takes its name. Another one stays.
  private func setAsideUnusableFile(of stream: String) throws(LogRefusal) {
    do throws(LogRefusal) {
      _ = try folder.remains(of: stream)
    } catch {
      try setAside(stream, error)
    }
  }

  /// Renames a file that cannot be used, and reports it.
  /// - Throws: when the file keeps its name.
  private func setAside(_ stream: String, _ refusal: LogRefusal, effect: String = "") throws(LogRefusal) {
    guard case .setAside(let suffix) = refusal.remedy else { throw refusal }
    let name = try folder.setAside(stream, suffix)
    journal.write(.stateLost, .warning, "the log file was renamed to \(name)\(effect): \(refusal)", .stream(stream))
  }

  private func fresh(_ stream: Configuration.Stream, _ limits: EventLog.Limits) -> EventLog? {
    EventLog(
      name: stream.name, limits: limits, firstID: folder.firstID(of: stream.name),
      followsFleet: stream.share == .fleet)
  }

  private func made(_ log: EventLog?, _ name: String) throws(SystemError) -> EventLog {
    guard let log else { throw SystemError("memfd_create", name) }
    return log
  }

  // MARK: The end

  /// Writes all logs on disk and closes them. No append may follow.
  ///
  /// - Parameter queue: the queue that used the logs last.
  /// - Returns: false at the timeout; the disk then lacks the last moments only.
  @discardableResult func close(within timeout: Duration, on queue: WorkQueue) -> Bool {
    nonisolated(unsafe) let store = self  // only the queue's thread uses it now
    let done = DispatchSemaphore(value: 0)
    queue.async {
      for (stream, log) in unsafe store.logs { unsafe store.folder.settleIDs(of: stream, at: log.nextOwnID) }
      unsafe store.folder.settleSharedIDs()
      unsafe store.folder.flushIDs()
      for (stream, log) in unsafe store.filed {
        log.close()
        unsafe store.folder.leave(stream)
      }
      done.signal()
    }
    return done.wait(timeout: .now() + .milliseconds(Int(timeout / .milliseconds(1)))) == .success
  }
}
