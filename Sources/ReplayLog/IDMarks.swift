import Dispatch
import Glibc
import Reactive
import StreamRuntime

/// For each stream an id above all assigned ones. The mark outlives the stream's log, so that the next log assigns
/// higher ids even if the clock was set back.
///
/// A file of lines, `ID NAME`, with the name `ids` in a folder that this process has locked. While a stream is active its
/// mark is ahead of it, so that a kill loses nothing; the end of a stream makes the mark exact. Thread-safe.
final class IDMarks: Sendable {
  private struct State {
    var marks: [String: UInt64] = [:]
    var hasChanged = false
    var isWriting = false
    var isWriteDue = false
    var hasFailed = false
    /// The folder; owned. Its path may be another folder's by now, which another process may have locked. -1: none.
    var folder: CInt
  }

  private let path: String
  private let report: @Sendable (String) -> Void
  private let state: Locked<State>
  private let queue = DispatchQueue(label: "streamd.ids")
  /// The time from a failure to the next attempt.
  private let pause: DispatchTimeInterval

  /// Maximum size of the file; the rest is not read.
  private static let maximumByteCount = 32 << 20
  /// Maximum number of marks in the file.
  private static let maximumCount = 65536

  /// Reads the file, if it exists.
  ///
  /// - Parameters:
  ///   - folder: its descriptor; it is opened anew, because a duplicate would keep the lock.
  ///   - path: the folder's, for reports.
  ///   - pause: the time from a failure to the next attempt, except for those of `flush`.
  ///   - report: called, on any thread, with a sentence about a failure of the file; of several write failures in a row
  ///     only for the first.
  init(
    in folder: CInt, path: String, retryingAfter pause: DispatchTimeInterval = .seconds(10),
    report: @escaping @Sendable (String) -> Void
  ) {
    (self.path, self.pause, self.report) = (path + "/ids", pause, report)
    state = Locked(State(folder: Self.opened(folder)))
    read()
  }

  deinit { close(state.withLock { $0.folder }) }

  /// Continues in the file of another folder, after reading it: of two marks the higher one counts.
  func move(to folder: CInt) {
    setFolder(Self.opened(folder))
    read()
  }

  /// Writes no file any more: the folder is not locked.
  func leave() { setFolder(-1) }

  private func setFolder(_ folder: CInt) {
    // On the queue, which may be writing the former file.
    queue.sync {
      let former = state.withLock { state in
        defer { (state.folder, state.hasChanged) = (folder, true) }
        return state.folder
      }
      close(former)
    }
  }

  private static func opened(_ folder: CInt) -> CInt {
    unsafe openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
  }

  private func read() {
    let descriptor = unsafe openat(
      state.withLock { $0.folder }, "ids", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
    guard descriptor >= 0 else {
      if errno != ENOENT { report(unsafe "\(path) cannot be read: \(String(cString: strerror(errno)))") }
      return
    }
    defer { close(descriptor) }
    var (bytes, room) = ([UInt8](), [UInt8](repeating: 0, count: 1 << 16))
    while bytes.count < Self.maximumByteCount {
      let count = unsafe Glibc.read(descriptor, &room, room.count)
      if count < 0, errno == EINTR { continue }
      if count < 0 { report(unsafe "\(path) cannot be read: \(String(cString: strerror(errno)))") }
      guard count > 0 else { break }
      bytes += room[..<count]
    }
    let (marks, useless) = Self.parse(bytes)
    state.withLock { $0.marks.merge(marks) { max($0, $1) } }
    if useless > 0 { report("\(path) has \(useless) lines that are not an id and a stream's name") }
  }

  private static func parse(_ bytes: [UInt8]) -> (marks: [String: UInt64], useless: Int) {
    var (marks, useless) = ([String: UInt64](), 0)
    for line in bytes.split(separator: UInt8(ascii: "\n")) {
      let parts = line.split(separator: UInt8(ascii: " "), maxSplits: 1)
      guard parts.count == 2, (1...255).contains(parts[1].count),
        let name = String(validating: parts[1], as: UTF8.self),
        let id = UInt64(String(decoding: parts[0], as: UTF8.self)), id < LogLayout.idLimit / 4 * 3,
        marks.count < maximumCount || marks[name] != nil
      else {
        useless += 1
        continue
      }
      marks[name] = max(id, marks[name] ?? 0)
    }
    return (marks, useless)
  }

  /// The stream's mark; 0 if there is none.
  func mark(of stream: String) -> UInt64 { state.withLock { $0.marks[stream] ?? 0 } }

  /// Whether the file has a mark of at least `id`.
  func hasWritten(_ stream: String, atLeast id: UInt64) -> Bool {
    state.withLock { !$0.hasChanged && !$0.isWriting && $0.marks[stream] ?? 0 >= id }
  }

  /// Raises the stream's mark: ids below `id` may now be assigned. Does not wait for the disk.
  func raise(_ stream: String, to id: UInt64) {
    let isFirst = state.withLock { state in
      guard id > state.marks[stream] ?? 0 else { return false }
      state.marks[stream] = id
      state.hasChanged = true
      defer { state.isWriteDue = true }
      return !state.isWriteDue
    }
    if isFirst { queue.async { self.write() } }
  }

  /// Sets the next id of an inactive stream.
  func settle(_ stream: String, at id: UInt64) {
    state.withLock { state in
      guard state.marks[stream] != id else { return }
      state.marks[stream] = id
      state.hasChanged = true
    }
  }

  /// Writes all changes to the disk; returns when that has finished or failed.
  func flush() { queue.sync { write() } }

  /// Runs on the queue.
  private func write() {
    let (folder, marks) = state.withLock { state -> (CInt, [String: UInt64]?) in
      state.isWriteDue = false
      defer { (state.hasChanged, state.isWriting) = (false, state.hasChanged) }
      return (state.folder, state.hasChanged ? state.marks : nil)
    }
    guard let marks else { return }
    let code = StoredFile.replace(
      "ids", in: folder, with: Array(marks.map { "\($0.value) \($0.key)\n" }.joined().utf8))
    let (isNews, retries) = state.withLock { state in
      defer { (state.hasFailed, state.isWriting) = (code != 0, false) }
      guard code != 0 else { return (false, false) }
      state.hasChanged = true
      defer { state.isWriteDue = true }
      return (!state.hasFailed, !state.isWriteDue)
    }
    if retries { queue.asyncAfter(deadline: .now() + pause) { [weak self] in self?.write() } }
    if isNews {
      report(unsafe "\(path) cannot be written: \(String(cString: strerror(code))); ids may decrease after a kill")
    }
  }
}
