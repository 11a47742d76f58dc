import Dispatch
import EventLoop
import Glibc
import ReplayLog
import Systemd

/// The logs of the configured streams: found where an earlier process left them, or made anew, and kept as each stream's
/// `keep` says. What cannot be kept where it should is kept in memory, and the journal says so.
///
/// For the main thread, while the daemon starts and when it ends.
final class KeptLogs {
  /// A stream's log, and what `$streams` is to say of it.
  struct Kept {
    let log: EventLog
    var remark: String?
  }

  /// What the service manager holds.
  private struct Held {
    let name: String
    let remains: LogRemains
  }

  private let manager: ServiceManager
  private let journal: Journal
  private let folder: StateFolder
  /// Whether files of streams that are kept elsewhere are this daemon's to look at.
  private let isOwnFolder: Bool
  private var held: [String: Held] = [:]
  private var heldCount = 0
  private var nextNumber = 0
  private var notHeld: [String] = []
  private var filed: [EventLog] = []

  private static let namePrefix = "log-"
  /// Of the descriptors that the service manager keeps, those that are not for logs.
  private static let reservedDescriptors = 16

  /// - Parameter stored: taken over, all of them; what is of no use is taken from the service manager.
  init(
    _ server: Configuration.Server, stored: [PassedDescriptors.Stored], manager: ServiceManager, journal: Journal
  ) {
    self.manager = manager
    self.journal = journal
    let own = Self.ownFolder(server)
    isOwnFolder = own != nil
    folder = StateFolder(
      path: own ?? Configuration.Server.standardState,
      boot: Self.variable("STREAMD_BOOT_ID").flatMap { BootID($0) } ?? BootID.current()
    ) { stream, reason in
      journal.write(.stateNotKept, .error, "events have not reached the disk: \(reason)", .stream(stream))
    }
    for stored in stored { take(stored) }
  }

  /// What `--check` says of the folder; nil: nothing.
  static func remark(on configuration: Configuration) -> String? {
    let names = configuration.streams.filter { $0.keep == .disk }.map(\.name)
    let path = ownFolder(configuration.server) ?? Configuration.Server.standardState
    guard !names.isEmpty, access(path, F_OK) != 0 else { return nil }
    return "\(path) is not there yet, where keep = \"disk\" puts the events of: \(names.joined(separator: ", "))"
  }

  /// Where the configuration or the unit says that files are.
  private static func ownFolder(_ server: Configuration.Server) -> String? {
    server.state ?? variable("STATE_DIRECTORY").map { String($0.prefix { $0 != ":" }) }
  }

  private static func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }

  // MARK: What the service manager held

  private func take(_ stored: PassedDescriptors.Stored) {
    guard stored.name.hasPrefix(Self.namePrefix), let number = Int(stored.name.dropFirst(Self.namePrefix.count)) else {
      Glibc.close(stored.descriptor)
      return manager.removeStored(stored.name)
    }
    nextNumber = max(nextNumber, number + 1)
    heldCount += 1
    do {
      let new = Held(name: stored.name, remains: try LogRemains(memory: stored.descriptor))
      // Two are there when the daemon was killed while it replaced one with the other.
      if let old = held.updateValue(new, forKey: new.remains.stream) {
        let worse = old.remains.endPosition > new.remains.endPosition ? new : old
        if worse.name == new.name { held[new.remains.stream] = old }
        release(worse)
      }
    } catch {
      journal.write(.stateLost, .warning, "what the service manager kept of a stream is of no use: \(error)")
      heldCount -= 1
      manager.removeStored(stored.name)
    }
  }

  private func release(_ held: Held?) {
    guard let held else { return }
    heldCount -= 1
    manager.removeStored(held.name)
  }

  private func hold(_ log: EventLog, of stream: String) {
    guard manager.storeLimit > 0 else { return }
    guard heldCount + Self.reservedDescriptors < manager.storeLimit else { return notHeld.append(stream) }
    manager.store(log.descriptor, as: "\(Self.namePrefix)\(nextNumber)")
    nextNumber += 1
    heldCount += 1
  }

  /// Lets go of what belongs to no stream any more, and says what is not held. After the last stream.
  func finish() {
    for held in held.values { release(held) }
    held = [:]
    guard !notHeld.isEmpty else { return }
    let names = notHeld.prefix(10).joined(separator: ", ") + (notHeld.count > 10 ? ", …" : "")
    journal.write(
      .stateNotKept, .warning,
      "the events of \(counted(notHeld.count, "stream")) go with the daemon, as the service manager keeps no more than "
        + "\(manager.storeLimit) descriptors (FileDescriptorStoreMax=): \(names)")
  }

  // MARK: A stream's log

  /// - Throws: `SystemError` when there is no memory for it.
  func log(of stream: Configuration.Stream) throws(SystemError) -> Kept {
    let limits = EventLog.Limits(stream.buffer)
    let held = held.removeValue(forKey: stream.name)
    var file: LogRemains?
    var refusal: LogRefusal?
    if stream.keep == .disk || isOwnFolder {
      do { file = try folder.remains(of: stream.name) } catch { refusal = error }
    }
    guard stream.keep != .no else {
      release(held)
      if file != nil { folder.remove(stream.name) }
      return Kept(log: try made(EventLog(name: stream.name, limits: limits), stream.name))
    }
    // Whoever gave the highest id was the last to run.
    let isFileNewer = file.map { $0.endPosition >= held?.remains.endPosition ?? 0 } ?? false
    if stream.keep == .disk {
      do throws(LogRefusal) {
        let log = try logInFile(of: stream.name, limits, file, isFileNewer ? nil : held?.remains, refusal)
        release(held)
        filed.append(log)
        return Kept(log: log)
      } catch {
        refusal = error
        journal.write(
          .stateNotKept, .error, "events are kept in memory, not on disk: \(folder.path): \(error)",
          .stream(stream.name))
      }
    }
    let best = isFileNewer ? file : held?.remains
    let log: EventLog
    if let held, !isFileNewer, held.remains.fits(limits) {
      log = held.remains.log(limits: limits)
    } else {
      let new =
        best.map { EventLog(name: stream.name, limits: limits, takingOver: $0.log()) }
        ?? EventLog(name: stream.name, limits: limits)
      log = try made(new, stream.name)
      hold(log, of: stream.name)
      release(held)
    }
    // Its ids are older from now on.
    if file != nil { folder.remove(stream.name) }
    return Kept(log: log, remark: stream.keep == .disk ? refusal.map { "not on disk: \($0)" } : nil)
  }

  /// - Parameters:
  ///   - newer: what is to be in the file instead of what it holds.
  ///   - refusal: why there is a file and no remains.
  private func logInFile(
    of stream: String, _ limits: EventLog.Limits, _ file: LogRemains?, _ newer: LogRemains?, _ refusal: LogRefusal?
  ) throws(LogRefusal) -> EventLog {
    if let refusal {
      guard refusal.isWorthless else { throw refusal }
      journal.write(
        .stateLost, .warning, "what was kept on disk is of no use, the stream begins anew: \(refusal)", .stream(stream))
    }
    if let file, newer == nil, file.isSalvaged {
      journal.write(
        .stateCutOff, .notice,
        "what was kept on disk had lost its end, as by a loss of power: \(file.count) events are left, ids go on after a gap",
        .stream(stream))
    }
    if let file, newer == nil, file.fits(limits) { return try folder.log(of: file, limits: limits) }
    return try folder.makeLog(of: stream, limits: limits, takingOver: (newer ?? file)?.log())
  }

  private func made(_ log: EventLog?, _ name: String) throws(SystemError) -> EventLog {
    guard let log else { throw SystemError("memfd_create", name) }
    return log
  }

  // MARK: The end

  /// Brings what is on disk up to date, for good. Nothing is appended any more.
  ///
  /// - Returns: false when the disk takes longer; then all but the last moments is there.
  @discardableResult func close(within timeout: Duration) -> Bool {
    guard !filed.isEmpty else { return true }
    nonisolated(unsafe) let logs = filed  // nobody else touches them at the end
    let done = DispatchSemaphore(value: 0)
    DispatchQueue.global().async {
      for log in logs { log.close() }
      done.signal()
    }
    return done.wait(timeout: .now() + .milliseconds(Int(timeout / .milliseconds(1)))) == .success
  }
}
