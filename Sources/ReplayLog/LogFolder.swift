import CLinux
import Glibc
import StreamRuntime
import Synchronization

/// A folder of logs in files, one per stream; locked by this process from its first use on. A write by another process
/// corrupts the files. A truncation by another process ends the process that has the files mapped.
@safe public final class LogFolder {
  /// The folder's path.
  public let path: String
  private let boot: BootID?
  private let progress: () -> Void
  private let report: @Sendable (String) -> Void
  private let writeFailed: @Sendable (_ stream: String, _ reason: String) -> Void
  private let files = FilesInUse()
  /// Set from the first use of the folder on.
  private var marks: IDMarks?
  /// As pread(2).
  var readFile: (CInt, UnsafeMutableRawPointer, Int, off_t) -> Int = { unsafe pread($0, $1, $2, $3) }
  /// As fsync(2), of the folder.
  var syncFolder: (CInt) -> CInt = { fsync($0) }
  private var use = Use.none

  private enum Use {
    case none  // can become: own, refused
    /// A descriptor with a lock on it.
    case own(CInt)
    case refused(LogRefusal)
  }

  /// The time for another process to release the lock while it exits or executes another program.
  private static let patience = (times: 50, microseconds: 20_000 as UInt32)

  /// - Parameters:
  ///   - path: a folder; the first log creates it if it does not exist.
  ///   - boot: the present boot; nil if unknown: a log that was not closed then counts as truncated by a power failure.
  ///   - progress: called repeatedly while files are read and written, which may take minutes for large ones.
  ///   - report: called, on any thread, with a sentence about ids that may be assigned twice.
  ///   - writeFailed: called, on any thread, when a log's sync failed, and once when its file is found to be gone. The log
  ///     continues in memory.
  public init(
    path: String, boot: BootID?, progress: @escaping () -> Void = {},
    report: @escaping @Sendable (String) -> Void = { _ in },
    writeFailed: @escaping @Sendable (_ stream: String, _ reason: String) -> Void
  ) {
    self.path = path
    self.boot = boot
    self.progress = progress
    self.report = report
    self.writeFailed = writeFailed
  }

  deinit {
    if case .own(let descriptor) = use { Glibc.close(descriptor) }
  }

  /// The stream's log from an earlier process.
  ///
  /// - Returns: nil when there is no file.
  /// - Throws: `LogRefusal`, of the file or of the folder. A file is never replaced implicitly: the caller sets an
  ///   unusable one aside.
  public func remains(of stream: String) throws(LogRefusal) -> LogRemains? {
    do throws(LogRefusal) {
      return try readRemains(of: stream)
    } catch {
      throw error.remedy == .replace ? LogRefusal(error.description, .setAside("unreadable")) : error
    }
  }

  private func readRemains(of stream: String) throws(LogRefusal) -> LogRemains? {
    guard try enter() else { return nil }
    let name = Self.fileName(for: stream)
    // Without O_NONBLOCK, opening a device would wait for its line.
    let descriptor = unsafe openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)
    guard descriptor >= 0 else {
      if errno == ENOENT { return nil }
      throw Self.outOfReach("\(Self.fileName(for: stream)) cannot be opened: \(reason(errno))")
    }
    guard let region = MappedRegion(adopting: descriptor) else { throw LogRefusal("it is not a streamd log") }
    // The size is compared with the header first: a wrong one could take the whole disk.
    try unsafe checkReading(descriptor, min(LogLayout.headerBytes, region.bytes.count))
    _ = try unsafe LogLayout(reading: region.bytes)
    // Holes in the file need their space on the disk, too.
    let code = unsafe posix_fallocate(descriptor, 0, region.bytes.count)
    guard code == 0 else {
      throw Self.outOfReach("\(Self.fileName(for: stream)) has not enough space on the disk: \(reason(code))")
    }
    try unsafe checkReading(descriptor, region.bytes.count)
    let remains = try LogRemains(file: region, boot: boot, time: firstID(of: stream), progress: progress)
    guard remains.stream == stream else {
      throw LogRefusal("it is the log of \"\(remains.stream)\"", .setAside("misplaced"))
    }
    return remains
  }

  /// Reads the beginning of the file, or all of it: a read reports a disk failure as an error, while access to mapped
  /// memory would end the process.
  private func checkReading(_ descriptor: CInt, _ byteCount: Int) throws(LogRefusal) {
    let room = UnsafeMutableRawPointer.allocate(byteCount: 1 << 20, alignment: 4096)
    defer { unsafe room.deallocate() }
    var offset = 0
    while offset < byteCount {
      let count = unsafe readFile(descriptor, room, min(1 << 20, byteCount - offset), off_t(offset))
      if count < 0, errno == EINTR { continue }
      guard count > 0 else {
        let failure = count < 0 ? reason(errno) : "it is shorter than it was"
        throw LogRefusal("it cannot be read at byte \(offset): \(failure)", .setAside("unreadable"))
      }
      offset += count
      progress()
    }
  }

  /// Renames a stream's file, so that another can replace it.
  ///
  /// - Parameter suffix: appended to its name.
  /// - Returns: its new name.
  /// - Throws: when the file keeps its name, because the new one exists already, or the folder does not allow it.
  public func setAside(_ stream: String, _ suffix: String) throws(LogRefusal) -> String {
    guard try enter() else { throw Self.outOfReach("it cannot be opened") }
    let name = Self.fileName(for: stream) + "." + suffix
    guard unsafe renameat2(folder, Self.fileName(for: stream), folder, name, RENAME_NOREPLACE) == 0 else {
      throw Self.outOfReach("\(Self.fileName(for: stream)) cannot be renamed to \(name): \(reason(errno))")
    }
    return name
  }

  /// Continues the log in the same file.
  /// - Precondition: the limits fit.
  public func log(of remains: LogRemains, limits: EventLog.Limits) throws(LogRefusal) -> EventLog {
    let log = try remains.log(
      limits: limits, boot: boot, progress: progress, didGrow: sync(remains.region, of: remains.stream))
    files.insert(path(of: remains.stream), of: remains.stream, log.descriptor)
    return log
  }

  /// A log in a new file, which replaces the existing one. All of its space is allocated here, so that a full disk
  /// fails here and never later.
  ///
  /// - Parameters:
  ///   - other: the log whose content it takes over; nil: it starts empty.
  ///   - followsFleet: as in `EventLog.init`.
  public func makeLog(
    of stream: String, limits: EventLog.Limits, takingOver other: EventLog?, followsFleet: Bool = false
  ) throws(LogRefusal) -> EventLog {
    if unsafe mkdir(path, 0o700) != 0, errno != EEXIST {
      throw Self.outOfReach("it cannot be created: \(reason(errno))")
    }
    guard try enter() else { throw Self.outOfReach("it cannot be opened") }
    let unfinished = Self.fileName(for: stream) + ".new"
    // What has the name may be half of a log, or anything else: to open a FIFO would wait.
    unsafe unlinkat(folder, unfinished, 0)
    let descriptor = unsafe openat(folder, unfinished, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
    guard descriptor >= 0 else { throw Self.outOfReach("no file can be created in it: \(reason(errno))") }
    var isFinished = false
    defer { if !isFinished { unsafe unlinkat(folder, unfinished, 0) } }
    let byteCount = LogLayout.byteCount(for: limits)
    let code = posix_fallocate(descriptor, 0, byteCount)
    guard code == 0 else {
      close(descriptor)
      throw Self.outOfReach("\(max(1, byteCount >> 20)) MiB cannot be allocated: \(reason(code))")
    }
    guard let region = MappedRegion(adopting: descriptor) else { throw Self.outOfReach("its file cannot be mapped") }
    let log = EventLog(
      formatting: region, name: stream, limits: limits, hasChecksums: true,
      state: LogState(startingAt: firstID(of: stream), boot: boot ?? .unknown), followsFleet: followsFleet,
      didGrow: sync(region, of: stream))
    if let other { log.takeOver(other) }
    log.state?.noteFirstMark(log.layout)
    region.marks = log.state?.marks
    progress()
    let failure = region.sync()
    guard failure == 0 else { throw Self.outOfReach("its file cannot be written: \(reason(failure))") }
    let renamed = files.rename(unfinished, in: folder, to: path(of: stream), of: stream, log.descriptor)
    guard renamed == 0 else { throw Self.outOfReach("its file cannot be renamed: \(reason(renamed))") }
    isFinished = true
    _ = syncFolder(folder)  // the new name survives a power failure only after this
    return log
  }

  /// The first id of a stream whose log is gone: the time in microseconds, or higher if an earlier log may have
  /// assigned that id. If this process has not locked the folder, the time alone.
  public func firstID(of stream: String) -> UInt64 { max(EventLog.wallClock(), marks?.mark(of: stream) ?? 0) }

  /// Records the stream's assigned ids from now on, independent of its log, if this process has locked the folder.
  public func rememberIDs(of log: EventLog, _ stream: String) {
    guard let marks else { return }
    log.reserveIDs { marks.raise(stream, to: $0) }
  }

  /// Records the next id of a stream that has become inactive.
  public func settleIDs(of stream: String, at id: UInt64) { marks?.settle(stream, at: id) }

  /// Writes the recorded ids to the disk; returns when that has finished or failed.
  public func flushIDs() { marks?.flush() }

  /// Removes a stream's file, if it exists.
  public func remove(_ stream: String) {
    guard case .own(let folder) = use else { return }
    files.remove(stream)
    unsafe unlinkat(folder, Self.fileName(for: stream), 0)
  }

  /// Whether no file has the stream's name. False if that cannot be found out.
  public func lacksFile(of stream: String) -> Bool { FileIdentity(at: path(of: stream)) == nil && isMissing(errno) }

  /// The stream's log is closed. Reports that its file is gone, as each sync does.
  public func leave(_ stream: String) {
    if let loss = files.loss(of: stream) { writeFailed(stream, loss) }
    files.remove(stream)
  }

  private func sync(_ region: MappedRegion, of stream: String) -> @Sendable () -> Void {
    { [writeFailed, weak files] in
      region.syncSoon { [weak files] code in
        if let failure = code == 0 ? files?.loss(of: stream) : reason(code) { writeFailed(stream, failure) }
      }
    }
  }

  /// Locks the folder, as the first use of it does.
  /// - Returns: false when it does not exist.
  @discardableResult public func enter() throws(LogRefusal) -> Bool {
    switch use {
    case .own(let descriptor) where FileIdentity(of: descriptor) == FileIdentity(at: path): return true
    case .own(let descriptor):
      // It was deleted or renamed. Another daemon may have locked a new one by now.
      close(descriptor)
      use = .none
      marks?.forgetFile()
    case .refused(let refusal): throw refusal
    case .none: break
    }
    let descriptor = unsafe open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    if descriptor < 0, errno == ENOENT { return false }
    guard descriptor >= 0 else { throw Self.outOfReach("it cannot be opened: \(reason(errno))") }
    var left = Self.patience.times
    while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
      let code = errno
      guard code == EWOULDBLOCK, left > 0 else {
        let refusal =
          code == EWOULDBLOCK ? Self.inUse(descriptor) : Self.outOfReach("it cannot be locked: \(reason(code))")
        close(descriptor)
        use = .refused(refusal)
        throw refusal
      }
      left -= 1
      usleep(Self.patience.microseconds)
    }
    use = .own(descriptor)
    // The former process may have been killed between a rename and its sync; later writes go to the renamed files.
    _ = syncFolder(descriptor)
    // No stream's file has this name: theirs end in .log.
    let marks = marks ?? IDMarks(path: path + "/ids", report: report)
    marks.setFolder(descriptor)
    self.marks = marks
    return true
  }

  /// The locked folder. Another one may have its path by now, with the files of another process. -1 without a lock.
  private var folder: CInt { if case .own(let descriptor) = use { descriptor } else { -1 } }

  private static func inUse(_ folder: CInt) -> LogRefusal {
    LogRefusal("\(owner(of: folder).map { "process \($0)" } ?? "another process") uses it", .wait)
  }

  /// The process that has locked a folder; nil if the kernel does not tell, for example for a process of another
  /// container.
  private static func owner(of folder: CInt) -> pid_t? {
    var status = stat()
    guard unsafe fstat(folder, &status) == 0, let locks = unsafe fopen("/proc/locks", "re") else { return nil }
    defer { unsafe fclose(locks) }
    var room = [CChar](repeating: 0, count: 256)
    while let line = unsafe fgets(&room, CInt(room.count), locks) {
      // 2: FLOCK  ADVISORY  WRITE 9054 fe:00:16237291 0 EOF
      let fields = unsafe String(cString: line).split(separator: " ")
      guard fields.count == 8, fields[1] == "FLOCK", fields[5].hasSuffix(":\(status.st_ino)") else { continue }
      return pid_t(fields[4]).flatMap { $0 > 0 ? $0 : nil }
    }
    return nil
  }

  private static func outOfReach(_ description: String) -> LogRefusal {
    LogRefusal(description, .leave)
  }

  private func path(of stream: String) -> String { path + "/" + Self.fileName(for: stream) }

  /// A unique file name that every file system accepts: `/` becomes `%2F`; a name that is too long is cut, and ends
  /// with a digest of the whole. The log itself contains the stream's name, which is authoritative.
  static func fileName(for stream: String) -> String {
    let name = stream.split(separator: "/", omittingEmptySubsequences: false).joined(separator: "%2F")
    guard name.utf8.count > 200 else { return name + ".log" }
    // FNV-1a, 64 bits.
    let digest = stream.utf8.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
    return name.prefix(180) + "~" + String(digest, radix: 16) + ".log"
  }
}

/// The files of the logs in use. A log whose file has lost its name is written to space that is free once the process
/// ends.
private final class FilesInUse: Sendable {
  private let files = Mutex<[String: (path: String, identity: FileIdentity?)]>([:])

  func insert(_ path: String, of stream: String, _ descriptor: CInt) {
    files.withLock { $0[stream] = (path, FileIdentity(of: descriptor)) }
  }

  /// Renames the file of a stream's log, which replaces the former one.
  /// - Returns: 0 or an errno.
  func rename(_ unfinished: String, in folder: CInt, to path: String, of stream: String, _ descriptor: CInt) -> CInt {
    files.withLock { files in
      let name = String(path.split(separator: "/").last ?? "")
      guard unsafe renameat(folder, unfinished, folder, name) == 0 else { return errno }
      files[stream] = (path, FileIdentity(of: descriptor))
      return 0
    }
  }

  func remove(_ stream: String) { files.withLock { $0[stream] = nil } }

  /// - Returns: once, that the stream's file is gone.
  func loss(of stream: String) -> String? {
    files.withLock { files in
      guard let file = files[stream] else { return nil }
      let named = FileIdentity(at: file.path)
      guard named != file.identity, named != nil || isMissing(errno) else { return nil }
      files[stream] = nil
      return "\(file.path) was deleted, renamed or replaced, and a restart begins without this log"
    }
  }
}

/// Whether nothing has a path, by the errno of a call.
private func isMissing(_ code: CInt) -> Bool { code == ENOENT || code == ENOTDIR }

private func reason(_ code: CInt) -> String { unsafe String(cString: strerror(code)) }
