import Dispatch
import Glibc
import ReplayLog
import StreamRuntime
import Synchronization
import Systemd

/// The logs of the configured streams, restored from an earlier process or new. Each is stored where the stream's
/// `keep` says. A log that cannot be stored there is in memory, which the journal reports.
///
/// Confined to one thread at a time.
final class LogStore {
  /// A stream's log, and the stream's remark for `$streams`.
  struct StoredLog {
    let log: EventLog
    var remark: String?
  }

  private final class Listener: Sendable {
    let notWritten = Mutex<(@Sendable (_ stream: String, _ remark: String) -> Void)?>(nil)
  }

  /// A log that the service manager stores.
  private struct Held {
    let name: String
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
  private var nextNumber = 0
  private var notHeld: [String] = []
  /// The service manager's name of each stream's log.
  private var storedNames: [String: String] = [:]
  /// Whether the service manager may not have received every log that was sent to it.
  private var isStoring = false
  /// Whether the service manager has left messages unread for `storeTime` since the last `finish`.
  private var isManagerLate = false
  private var filed: [String: EventLog] = [:]
  /// Streams that should be on disk and are in memory; their files keep their content.
  private var leftBehind: Set<String> = []
  /// All logs in use.
  private var logs: [String: EventLog] = [:]

  private static let namePrefix = "log-"
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
    let own = Self.ownFolder(server)
    isOwnFolder = own != nil
    let progress = Self.progress(to: manager)
    self.progress = progress
    folder = LogFolder(
      path: own ?? Configuration.Server.standardState,
      boot: Self.variable("STREAMD_BOOT_ID").flatMap { BootID($0) } ?? BootID.current(), progress: progress,
      report: { journal.write(.stateNotKept, .warning, $0) }
    ) { [listener] stream, reason in
      journal.write(.stateNotKept, .error, "events not written to disk: \(reason)", .stream(stream))
      listener.notWritten.withLock { $0 }?(stream, "not on disk: \(reason)")
    }
    for stored in stored { take(stored) }
  }

  /// - Parameter notWritten: called from now on, on any thread, when events of a stream are not written to disk any more, with
  ///   its remark.
  func listen(_ notWritten: @escaping @Sendable (_ stream: String, _ remark: String) -> Void) {
    listener.notWritten.withLock { $0 = notWritten }
  }

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

  /// The remark of `--check` on the state directory; nil: there is none.
  static func remark(on configuration: Configuration) -> String? {
    let names = configuration.streams.filter { $0.keep == .disk }.map(\.name)
    let path = ownFolder(configuration.server) ?? Configuration.Server.standardState
    var status = stat()
    let fault: String? =
      if unsafe stat(path, &status) == 0 {
        status.st_mode & S_IFMT == S_IFDIR ? nil : "is not a directory"
      } else {
        obstacle(toMaking: path).map { "does not exist and cannot be created (\($0))" }
      }
    guard !names.isEmpty, let fault else { return nil }
    return "\(path) \(fault), but is required for keep = \"disk\" of: \(names.joined(separator: ", "))"
  }

  /// The reason why this user cannot make a directory; nil: there is none.
  private static func obstacle(toMaking path: String) -> String? {
    let name = path.split(separator: "/").last?.startIndex ?? path.startIndex
    guard unsafe access(String(path[..<name]), W_OK | X_OK) != 0 else { return nil }
    return unsafe String(cString: strerror(errno))
  }

  /// The state directory that the configuration or the unit sets; nil: neither does.
  private static func ownFolder(_ server: Configuration.Server) -> String? {
    server.state ?? variable("STATE_DIRECTORY").map { String($0.prefix { $0 != ":" }) }
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

  private static func variable(_ name: String) -> String? { unsafe getenv(name).map { unsafe String(cString: $0) } }

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
      let new = Held(name: stored.name, remains: try LogRemains(memory: stored.descriptor, progress: progress))
      // A stream has two logs if the daemon was killed while replacing one by the other.
      if let old = held.updateValue(new, forKey: new.remains.stream) {
        let worse = old.remains.endPosition > new.remains.endPosition ? new : old
        if worse.name == new.name { held[new.remains.stream] = old }
        release(worse)
      }
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

  private func release(_ held: Held?) { release(stored: held?.name) }

  /// - Parameter former: the name of the log that this one replaces. It is released next, so its descriptor counts as
  ///   free.
  private func hold(_ log: EventLog, of stream: String, inPlaceOf former: String? = nil) {
    guard manager.storeLimit > 0 else { return }
    guard storedCount - (former == nil ? 0 : 1) + Self.reservedDescriptors < manager.storeLimit else {
      return notHeld.append(stream)
    }
    let name = "\(Self.namePrefix)\(nextNumber)"
    manager.store(log.descriptor, as: name)
    storedNames[stream] = name
    nextNumber += 1
    heldCount.add(1, ordering: .relaxed)
    isStoring = true
  }

  /// Waits until the service manager has received the logs that were sent to it. Until then, a kill loses events that
  /// are only in such a log: none may be appended to it, and the file that it replaces must not be removed.
  ///
  /// - Returns: false if the manager is late. Later calls then do not wait, until `finish`.
  @discardableResult func confirm() -> Bool {
    guard isStoring else { return true }
    isStoring = !manager.flush(within: isManagerLate ? .zero : Self.storeTime)
    if isStoring { isManagerLate = true }
    return !isStoring
  }

  private func release(stored name: String?) {
    guard let name else { return }
    heldCount.subtract(1, ordering: .relaxed)
    manager.removeStored(name)
  }

  /// Releases logs without a stream, and reports which logs are not kept. Called after the last stream of a start or
  /// reload.
  func finish() {
    folder.flushIDs()
    for held in held.values { release(held) }
    held = [:]
    confirm()
    if isManagerLate {
      isManagerLate = false
      journal.write(
        .stateNotKept, .warning,
        "a kill may lose events: the service manager has not received all logs within \(Self.storeTime.inUnits)")
    }
    guard !notHeld.isEmpty else { return }
    defer { notHeld = [] }
    let names = notHeld.prefix(10).joined(separator: ", ") + (notHeld.count > 10 ? ", …" : "")
    journal.write(
      .stateNotKept, .warning,
      "the events of \(counted(notHeld.count, "stream")) will not survive the daemon: the service manager stores at most "
        + "\(manager.storeLimit) descriptors (FileDescriptorStoreMax=): \(names)")
  }

  // MARK: A stream's log

  /// - Throws: `SystemError` when there is no memory for it.
  func log(of stream: Configuration.Stream) throws(SystemError) -> StoredLog {
    let kept = try findLog(of: stream)
    use(kept.log, for: stream.name)
    return kept
  }

  private func use(_ log: EventLog, for stream: String) {
    logs[stream] = log
    folder.rememberIDs(of: log, stream)
  }

  /// Restores or creates a stream's log.
  private func findLog(of stream: Configuration.Stream) throws(SystemError) -> StoredLog {
    let limits = EventLog.Limits(stream)
    var held = held.removeValue(forKey: stream.name)
    var file: LogRemains?
    var refusal: LogRefusal?
    if stream.keep == .disk || isOwnFolder {
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
      if file != nil { folder.remove(stream.name) }
      return StoredLog(log: try made(fresh(stream, limits), stream.name))
    }
    // The log with the newest event was in use last. A superseded file is older than its replacement.
    let isFileNewer =
      file.map { file in
        let end = held?.remains.endPosition ?? 0
        return file.isSalvaged ? file.eventsEnd > end : file.endPosition >= end
      } ?? false
    if stream.keep == .disk {
      do throws(LogRefusal) {
        let log = try logInFile(of: stream, limits, file, isFileNewer ? nil : held?.remains, refusal)
        release(held)
        filed[stream.name] = log
        return StoredLog(log: log)
      } catch {
        refusal = error
        reportNotOnDisk(stream.name, error)
      }
    }
    let best = isFileNewer ? file : held?.remains
    let log: EventLog
    if let held, !isFileNewer, held.remains.fits(limits) {
      log = held.remains.log(limits: limits)
      storedNames[stream.name] = held.name
    } else {
      let new = best.map { EventLog(name: stream.name, limits: limits, takingOver: $0.log()) } ?? fresh(stream, limits)
      log = try made(new, stream.name)
      hold(log, of: stream.name, inPlaceOf: held?.name)
      release(held)
    }
    if let file {
      if stream.keep != .disk, confirm() {
        folder.remove(stream.name)
      } else {
        file.leaveBehind()
        leftBehind.insert(stream.name)
      }
    }
    return StoredLog(log: log, remark: stream.keep == .disk ? refusal.map { "not on disk: \($0)" } : nil)
  }

  /// The streams whose logs are not in the file where `keep` wants them, and may be now: the file could not be made, or it
  /// is gone. A file of former processes stays, because it may have events that the log lacks.
  func displaced(among streams: [Configuration.Stream]) -> Set<String> {
    let names = streams.filter { $0.keep == .disk }.map(\.name)
    return Set(names.filter { leftBehind.contains($0) || folder.lacksFile(of: $0) })
  }

  /// The log of a stream that needs another one, as `ConfigurationDifference.Change.hasOtherLog` says, or that is
  /// displaced. It has the events that fit, with their ids, but none if the stream was not shared with other hosts and now is.
  ///
  /// - Parameter old: the stream's log so far; it must not change during the call.
  /// - Throws: `SystemError` when there is no memory for it; nothing has changed then.
  func log(of stream: Configuration.Stream, insteadOf old: EventLog) throws(SystemError) -> StoredLog {
    let kept = try makeLog(of: stream, insteadOf: old)
    use(kept.log, for: stream.name)
    return kept
  }

  private func makeLog(of stream: Configuration.Stream, insteadOf old: EventLog) throws(SystemError) -> StoredLog {
    let (name, limits) = (stream.name, EventLog.Limits(stream))
    var refusal: LogRefusal?
    let startsAnew = stream.share == .fleet && !old.followsFleet
    if startsAnew { journal.write(.stateLost, .warning, "the stream starts anew: \(LogRefusal.ownIDs)", .stream(name)) }
    if stream.keep == .disk {
      do throws(LogRefusal) {
        if filed[name] == nil, !leftBehind.contains(name) { try setAsideForeignFile(of: name) }
        let log = try folder.makeLog(
          of: name, limits: limits, takingOver: startsAnew ? nil : old, followsFleet: stream.share == .fleet)
        release(stored: storedNames.removeValue(forKey: name))
        filed[name] = log
        leftBehind.remove(name)
        return StoredLog(log: log)
      } catch {
        refusal = error
        reportNotOnDisk(name, error)
      }
    }
    let isFiled = filed[name] != nil
    let stays = !isFiled && old.limits == limits && !startsAnew
    let new = startsAnew ? fresh(stream, limits) : stays ? old : EventLog(name: name, limits: limits, takingOver: old)
    let log = try made(new, name)
    let storedName = storedNames.removeValue(forKey: name)
    if stays, stream.keep != .no, storedName != nil {
      storedNames[name] = storedName
    } else {
      if stream.keep != .no { hold(log, of: name, inPlaceOf: storedName) }
      release(stored: storedName)
    }
    let replacesFile = stream.keep == .no || confirm() && stream.keep == .memory
    if replacesFile {
      if isFiled || leftBehind.remove(name) != nil { folder.remove(name) }
      filed[name] = nil
    } else if let file = filed.removeValue(forKey: name) {
      file.leaveBehind()
      leftBehind.insert(name)
    }
    return StoredLog(log: log, remark: refusal.map { "not on disk: \($0)" })
  }

  /// Releases the log of a stream that is no longer served. A file keeps its content.
  func forget(_ stream: String) {
    release(stored: storedNames.removeValue(forKey: stream))
    leftBehind.remove(stream)
    if let log = logs.removeValue(forKey: stream) { folder.settleIDs(of: stream, at: log.nextOwnID) }
    guard let file = filed.removeValue(forKey: stream) else { return }
    file.close()
    folder.leave(stream)
  }

  private func reportNotOnDisk(_ stream: String, _ refusal: LogRefusal) {
    journal.write(
      .stateNotKept, .error, "events are stored in memory, not on disk: \(folder.path): \(refusal)", .stream(stream))
  }

  /// - Parameters:
  ///   - newer: a log that replaces the file's content; nil: the file has the newest events.
  ///   - refusal: why the existing file cannot be restored.
  private func logInFile(
    of stream: Configuration.Stream, _ limits: EventLog.Limits, _ file: LogRemains?, _ newer: LogRemains?,
    _ refusal: LogRefusal?
  ) throws(LogRefusal) -> EventLog {
    if let refusal { try setAside(stream.name, refusal, effect: ", the stream starts anew") }
    if let file, newer == nil, file.isSalvaged {
      journal.write(
        .stateCutOff, .notice,
        "the log file had lost its end, as after a power failure: \(file.count) events remain"
          + (file.endPosition > file.eventsEnd ? ", ids continue after a gap" : ""), .stream(stream.name))
    }
    if let file, newer == nil, file.fits(limits) { return try folder.log(of: file, limits: limits) }
    return try folder.makeLog(
      of: stream.name, limits: limits, takingOver: (newer ?? file)?.log(), followsFleet: stream.share == .fleet)
  }

  /// Renames a file that no process of this version has written, before a log in use takes its name.
  private func setAsideForeignFile(of stream: String) throws(LogRefusal) {
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
  @discardableResult func close(within timeout: Duration, on queue: DispatchQueue) -> Bool {
    nonisolated(unsafe) let store = self  // only the queue's thread uses it now
    let done = DispatchSemaphore(value: 0)
    queue.async {
      for (stream, log) in unsafe store.logs { unsafe store.folder.settleIDs(of: stream, at: log.nextOwnID) }
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
