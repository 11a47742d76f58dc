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
  private let writeFailed: @Sendable (_ stream: String, _ reason: String, _ region: MappedRegion?) -> Void
  private let files = StreamFiles()
  /// Set from the first use of the folder on.
  private var marks: IDMarks?
  /// The streams of templates.
  private var sharing: Set<String> = []
  /// An id above all that streams of templates have assigned which are gone.
  private var sharedFloor: UInt64 = 0
  /// As pread(2).
  var readFile: (CInt, UnsafeMutableRawPointer, Int, off_t) -> Int = { unsafe pread($0, $1, $2, $3) }
  /// As fsync(2), of the folder.
  var syncFolder: (CInt) -> CInt = { fsync($0) }
  private var use = Use.none
  /// The names of its files, also of those that are gone.
  private var fileNames: Set<String> = []
  /// Locked folders that have lost their name. Their locks stay while logs in them may be in use.
  private var former: [CInt] = []

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
  ///     continues in memory. `region` is the log's; nil: the log was closed.
  public init(
    path: String, boot: BootID?, progress: @escaping () -> Void = {},
    report: @escaping @Sendable (String) -> Void = { _ in },
    writeFailed: @escaping @Sendable (_ stream: String, _ reason: String, _ region: MappedRegion?) -> Void
  ) {
    self.path = path
    self.boot = boot
    self.progress = progress
    self.report = report
    self.writeFailed = writeFailed
  }

  deinit {
    if case .own(let descriptor) = use { Glibc.close(descriptor) }
    for descriptor in former { Glibc.close(descriptor) }
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

  /// False only if the folder does not exist or, once this process has locked it, never had a file of the stream.
  public func mayHaveFile(of stream: String) -> Bool {
    if case .own = use {
    } else {
      guard let isThere = try? enter() else { return true }
      guard isThere else { return false }
    }
    return fileNames.contains(Self.fileName(for: stream))
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
    files.use(log.descriptor, at: path(of: remains.stream), of: remains.stream)
    return log
  }

  /// A log in a new file, which replaces the existing one. All of its space is allocated here, so that a full disk
  /// fails here and never later.
  ///
  /// - Parameters:
  ///   - other: the log whose content it takes over; nil: it starts empty.
  ///   - remains: the content of the existing file, if that is not the file of a log of this process.
  ///   - followsFleet: as in `EventLog.init`.
  /// - Throws: `LogRefusal`, also if the existing file is neither of both: it may have events that no other log has.
  public func makeLog(
    of stream: String, limits: EventLog.Limits, takingOver other: EventLog?, replacing remains: LogRemains? = nil,
    followsFleet: Bool = false
  ) throws(LogRefusal) -> EventLog {
    if unsafe mkdir(path, 0o700) != 0, errno != EEXIST {
      throw Self.outOfReach("it cannot be created: \(reason(errno))")
    }
    guard try enter() else { throw Self.outOfReach("it cannot be opened") }
    let (folder, name) = (self.folder, Self.fileName(for: stream))
    let foreign = Self.outOfReach(
      "\(name) was written by another process and stays: move it away and reload, or restart, which continues the newer log"
    )
    guard files.knowsFile(name, in: folder, of: stream, or: remains) else { throw foreign }
    let unfinished = name + ".new"
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
      extent: LogExtent(startingAt: firstID(of: stream), boot: boot ?? .unknown), followsFleet: followsFleet,
      didGrow: sync(region, of: stream))
    if let other { log.takeOver(other) }
    log.state?.noteFirstMark(log.layout)
    region.marks = log.state?.marks
    progress()
    let failure = region.sync()
    guard failure == 0 else { throw Self.outOfReach("its file cannot be written: \(reason(failure))") }
    // Filling the file may have taken minutes.
    guard files.knowsFile(name, in: folder, of: stream, or: remains) else { throw foreign }
    let renamed = files.rename(unfinished, name, in: folder, log.descriptor, at: path(of: stream), of: stream)
    fileNames.insert(name)
    guard renamed == 0 else { throw Self.outOfReach("its file cannot be renamed: \(reason(renamed))") }
    isFinished = true
    _ = syncFolder(folder)  // the new name survives a power failure only after this
    return log
  }

  /// The first id of a stream whose log is gone: the time in microseconds, or higher if an earlier log may have
  /// assigned that id. If this process has not locked the folder, the time alone.
  /// Streams of templates come and go: they have one mark together, so also if their names belong to others later.
  public func firstID(of stream: String) -> UInt64 {
    max(EventLoop.wallClock(), marks?.mark(of: stream) ?? 0, sharedFloor)
  }

  /// The stream is one of a template from now on, or is not.
  public func setSharesIDs(_ isShared: Bool, _ stream: String) {
    if isShared { sharing.insert(stream) } else { sharing.remove(stream) }
  }

  /// No stream has this name.
  private static let sharedMark = "{}"
  /// The mark of these rises in steps of 2^26, so that few new streams wait for the disk.
  private static let stepBits: UInt64 = 26

  /// Records the stream's assigned ids from now on, independent of its log, if this process has locked the folder.
  public func rememberIDs(of log: EventLog, _ stream: String) {
    guard let marks else { return }
    guard sharing.contains(stream) else { return log.reserveIDs { marks.raise(stream, to: $0) } }
    log.reserveIDs { marks.raise(Self.sharedMark, to: ($0 >> Self.stepBits + 1) << Self.stepBits) }
  }

  /// The streams whose logs are in files of the folder, as far as their heads can be read.
  public var streamNames: [String] {
    guard case .own(let folder) = use else { return [] }
    return Self.names(in: folder).compactMap { file in
      guard file.hasSuffix(".log"), let name = LogLayout.streamName(of: file, in: folder) else { return nil }
      return Self.fileName(for: name) == file ? name : nil
    }.sorted()
  }

  private static func names(in folder: CInt) -> [String] {
    guard let copy = unsafe fdopendir(openat(folder, ".", O_RDONLY | O_CLOEXEC)) else { return [] }
    defer { unsafe closedir(copy) }
    var names: [String] = []
    while let entry = unsafe readdir(copy) {
      unsafe withUnsafePointer(to: &entry.pointee.d_name) {
        unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { names.append(unsafe String(cString: $0)) }
      }
    }
    return names
  }

  /// Whether the disk has a bound above the first ids of the next stream of a template, so that it need not wait.
  public var hasBoundOfSharedIDs: Bool {
    guard let marks else { return true }
    let first = max(EventLoop.wallClock(), sharedFloor) + 1 << Self.stepBits
    return marks.hasWritten(Self.sharedMark, atLeast: (first >> Self.stepBits + 1) << Self.stepBits)
  }

  /// Records the next id of a stream that has become inactive.
  public func settleIDs(of stream: String, at id: UInt64) {
    if sharing.contains(stream) { sharedFloor = max(sharedFloor, id) } else { marks?.settle(stream, at: id) }
  }

  /// All streams are inactive.
  public func settleSharedIDs() { if sharedFloor > 0 { marks?.settle(Self.sharedMark, at: sharedFloor) } }

  /// Writes the recorded ids to the disk; returns when that has finished or failed.
  public func flushIDs() { marks?.flush() }

  /// Removes a stream's file, unless it is another process's.
  /// - Parameter remains: the content of the file, if that is not the file of a log of this process.
  public func remove(_ stream: String, replacing remains: LogRemains? = nil) {
    guard case .own(let folder) = use else { return }
    let name = Self.fileName(for: stream)
    if files.knowsFile(name, in: folder, of: stream, or: remains) { unsafe unlinkat(folder, name, 0) }
    files.remove(stream)
  }

  /// Removes the file of a stream without a log in it, such as one that could not be continued because the disk failed.
  public func removeLeft(_ stream: String) {
    guard case .own = use, mayHaveFile(of: stream), let left = try? remains(of: stream) else { return }
    remove(stream, replacing: left)
  }

  /// Whether the stream has a log in use whose file has its name. True if that cannot be found out.
  public func hasFile(of stream: String) -> Bool { files.isInUse(stream) }

  /// Whether the file that has the stream's name was left behind, and not continued since.
  public func hasLeftFile(of stream: String) -> Bool {
    guard case .own(let folder) = use, files.hasLeftFile(stream) else { return false }
    return files.knowsFile(Self.fileName(for: stream), in: folder, of: stream, or: nil)
  }

  /// Whether a file has the stream's name that this process did not write.
  public func hasForeignFile(of stream: String) -> Bool {
    guard (try? enter()) == true, case .own(let folder) = use else { return false }
    return !files.knowsFile(Self.fileName(for: stream), in: folder, of: stream, or: nil)
  }

  /// Marks a log's file as superseded, as `EventLog.leaveBehind()` does. This process may replace or remove the file until
  /// another process continues it.
  public func leaveBehind(_ log: EventLog, of stream: String) {
    log.leaveBehind()
    files.leaveBehind(log.descriptor, log.layout, at: path(of: stream), of: stream)
  }

  /// As above, for remains in a file.
  public func leaveBehind(_ remains: LogRemains) {
    remains.leaveBehind()
    files.leaveBehind(
      remains.region.descriptor, remains.layout, at: path(of: remains.stream), of: remains.stream)
  }

  /// The stream's log is closed. Reports that its file is gone, as each sync does.
  public func leave(_ stream: String) {
    if let loss = files.loss(of: stream) { writeFailed(stream, loss, nil) }
    files.remove(stream)
  }

  private func sync(_ region: MappedRegion, of stream: String) -> @Sendable () -> Void {
    { [writeFailed, weak files] in
      region.syncSoon { [weak files] code in
        if let failure = code == 0 ? files?.loss(of: stream) : reason(code) { writeFailed(stream, failure, region) }
      }
    }
  }

  /// Another attempt to lock the folder may succeed from now on: the process that used it may have ended.
  public func forgetRefusal() {
    if case .refused = use { use = .none }
  }

  /// Unlocks folders that have lost their name, unless logs in them are in use.
  public func releaseFormer() {
    guard !former.isEmpty, files.areNamed else { return }
    if case .own = use {} else { marks?.leave() }
    for descriptor in former { close(descriptor) }
    former = []
  }

  /// Locks the folder, as the first use of it does.
  /// - Returns: false when it does not exist.
  @discardableResult public func enter() throws(LogRefusal) -> Bool {
    switch use {
    case .own(let descriptor) where FileIdentity(of: descriptor) == FileIdentity(at: path): return true
    case .own(let descriptor):
      // It was deleted or renamed. Another daemon may have locked a new one by now.
      former.append(descriptor)
      use = .none
    case .refused(let refusal): throw refusal
    case .none: break
    }
    let descriptor = unsafe open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    if descriptor < 0, errno == ENOENT { return false }
    guard descriptor >= 0 else { throw Self.outOfReach("it cannot be opened: \(reason(errno))") }
    if let index = former.firstIndex(where: { FileIdentity(of: $0) == FileIdentity(of: descriptor) }) {
      close(descriptor)
      begin(in: former.remove(at: index))
      return true
    }
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
    begin(in: descriptor)
    return true
  }

  /// - Parameter descriptor: of the folder, with a lock on it.
  private func begin(in descriptor: CInt) {
    use = .own(descriptor)
    fileNames.formUnion(Self.names(in: descriptor))
    // The former process may have been killed between a rename and its sync; later writes go to the renamed files.
    _ = syncFolder(descriptor)
    // No stream's file has this name: theirs end in .log.
    if let marks {
      marks.move(to: descriptor)
    } else {
      marks = IDMarks(in: descriptor, path: path, report: report)
    }
    sharedFloor = max(sharedFloor, marks?.mark(of: Self.sharedMark) ?? 0)
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

/// The streams' files that this process has written. Any other file with such a name is another process's: it is neither
/// replaced nor removed.
private final class StreamFiles: Sendable {
  private struct File {
    let path: String
    let identity: FileIdentity?
    /// The digest of the header of a file that was left behind: a process that continues the log changes it, so the file
    /// is not this process's any more. nil: the log is in use.
    var leftHeader: UInt32?
    /// Whether it was reported that the file is gone. The log is written to space that is free once the process ends.
    var isLost = false

    var isNamed: Bool? {
      let named = FileIdentity(at: path, followsLinks: false)
      return named == nil && !isMissing(errno) ? nil : named == identity
    }
  }

  private let files = Mutex<[String: File]>([:])

  /// The log behind a descriptor is in use.
  func use(_ descriptor: CInt, at path: String, of stream: String) {
    files.withLock { $0[stream] = File(path: path, identity: FileIdentity(of: descriptor)) }
  }

  func leaveBehind(_ descriptor: CInt, _ layout: LogLayout, at path: String, of stream: String) {
    let file = File(path: path, identity: FileIdentity(of: descriptor), leftHeader: layout.headerDigest)
    files.withLock { $0[stream] = file }
  }

  /// Renames the file of a stream's log, which replaces the former one.
  /// - Returns: 0 or an errno.
  func rename(
    _ unfinished: String, _ name: String, in folder: CInt, _ descriptor: CInt, at path: String, of stream: String
  ) -> CInt {
    files.withLock { files in
      guard unsafe renameat(folder, unfinished, folder, name) == 0 else { return errno }
      files[stream] = File(path: path, identity: FileIdentity(of: descriptor))
      return 0
    }
  }

  func remove(_ stream: String) { files.withLock { $0[stream] = nil } }

  /// Whether a file is this process's, has the content of `remains`, or does not exist.
  func knowsFile(_ name: String, in folder: CInt, of stream: String, or remains: LogRemains?) -> Bool {
    guard let named = FileIdentity(of: name, in: folder) else { return isMissing(errno) }
    if let remains, FileIdentity(of: remains.region.descriptor) == named { return true }
    guard let file = files.withLock({ $0[stream] }), file.identity == named else { return false }
    return file.leftHeader.map { $0 == LogLayout.headerDigest(of: name, in: folder) } ?? true
  }

  func hasLeftFile(_ stream: String) -> Bool { files.withLock { $0[stream] }?.leftHeader != nil }

  /// Whether the stream has a log in use whose file has its name, or that cannot be found out.
  func isInUse(_ stream: String) -> Bool {
    files.withLock { $0[stream] }.map { $0.leftHeader == nil && $0.isNamed ?? true } ?? false
  }

  /// Whether the files of all logs in use have their names.
  var areNamed: Bool { files.withLock { $0.values.allSatisfy { $0.leftHeader != nil || $0.isNamed == true } } }

  /// - Returns: once, that the file of a stream's log in use is gone.
  func loss(of stream: String) -> String? {
    files.withLock { files in
      guard let file = files[stream], file.leftHeader == nil, !file.isLost, file.isNamed == false else { return nil }
      files[stream]?.isLost = true
      return "\(file.path) was deleted, renamed or replaced, and a restart begins without this log"
    }
  }
}

/// Whether nothing has a path, by the errno of a call.
private func isMissing(_ code: CInt) -> Bool { code == ENOENT || code == ENOTDIR }

private func reason(_ code: CInt) -> String { unsafe String(cString: strerror(code)) }
