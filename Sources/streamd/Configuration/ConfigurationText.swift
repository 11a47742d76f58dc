import Glibc

/// A file of the configuration: the main one or a drop-in.
struct ConfigurationText: Sendable, Equatable {
  /// The file's path, for error messages.
  let path: String
  /// The content, which has no secrets, only the names of credentials.
  let bytes: [UInt8]

  /// Maximum bytes of all files together, with their paths.
  static let limit = 1 << 20

  /// The files of a configuration: the main one, then the drop-ins in the order of their names.
  /// - Parameter waits: whether the main file may be a pipe or `-`, standard input, which has no drop-ins.
  /// - Returns: also the errors of drop-ins that cannot be read, or of their directory.
  /// - Throws: the error of a main file that cannot be read.
  static func files(
    at path: String, waits: Bool = false
  ) throws(ConfigurationErrors) -> (read: [ConfigurationText], errors: [String]) {
    var files: [ConfigurationText] = []
    var errors: [String] = []
    var free = limit
    let isInput = waits && path == "-"
    /// - Returns: the error of a file that cannot be read.
    func add(_ path: String) -> ConfigurationErrors? {
      do throws(FileRefusal) {
        let bytes = try readFile(at: path, limit: limit, waits: waits && files.isEmpty)
        let text = ConfigurationText(path: isInput ? "standard input" : path, bytes: bytes)
        // A single file is stored without its path.
        guard files.isEmpty || text.storedByteCount <= free else {
          throw FileRefusal(
            reason: "all files together, with their paths, have more than \(limit >> 20) MiB")
        }
        free -= text.storedByteCount
        files.append(text)
        return nil
      } catch {
        return ConfigurationErrors(file: path, [.init(text: "cannot be read: \(error.reason)")])
      }
    }
    if let error = add(path) { throw error }
    guard !isInput else { return (files, []) }
    do throws(ConfigurationErrors) {
      for path in try dropIns(in: dropInDirectory(of: path)) { errors += add(path)?.sentences ?? [] }
    } catch {
      errors = error.sentences
    }
    return (files, errors)
  }

  /// Whether every user of the machine may read the files, according to their modes.
  static func mayAllRead(filesAt path: String) -> Bool {
    guard let dropIns = try? dropIns(in: dropInDirectory(of: path)) else { return false }
    return ([path] + dropIns).allSatisfy { path in
      guard let real = unsafe realpath(path, nil) else { return false }
      defer { unsafe free(real) }
      var (name, needed) = (unsafe String(cString: real), S_IROTH)
      while !name.isEmpty {
        var status = stat()
        guard unsafe stat(name, &status) == 0, status.st_mode & needed != 0 else { return false }
        (name, needed) = (String(name.prefix(upTo: name.lastIndex(of: "/") ?? name.startIndex)), S_IXOTH)
      }
      return true
    }
  }

  /// `/etc/streamd/streamd.d` of `/etc/streamd/streamd.toml`.
  private static func dropInDirectory(of path: String) -> String {
    (path.hasSuffix(".toml") ? String(path.dropLast(5)) : path) + ".d"
  }

  /// The paths of `*.toml` without hidden files, in the order of their bytes; none if there is no directory.
  private static func dropIns(in directory: String) throws(ConfigurationErrors) -> [String] {
    guard let entries = unsafe opendir(directory) else {
      let code = errno
      if code == ENOENT { return [] }
      throw ConfigurationErrors(
        file: directory, [.init(text: "cannot be read: \(unsafe String(cString: strerror(code)))")])
    }
    defer { unsafe closedir(entries) }
    var names: [String] = []
    while let entry = unsafe readdir(entries) {
      let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
        unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
      }
      if name.hasSuffix(".toml"), !name.hasPrefix(".") { names.append(name) }
    }
    return names.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }.map { "\(directory)/\($0)" }
  }

  fileprivate var storedByteCount: Int { 8 + path.utf8.count + bytes.count }
}

/// The form in which the files of a configuration are stored. A single file is stored as it is. Several follow a NUL,
/// which no TOML has, each as its path and its bytes after their lengths (4 bytes, big-endian).
extension [ConfigurationText] {
  var stored: [UInt8] {
    guard count > 1 else { return first?.bytes ?? [] }
    return reduce(into: [0]) { stored, file in
      for part in [[UInt8](file.path.utf8), file.bytes] {
        stored += unsafe Swift.withUnsafeBytes(of: UInt32(part.count).bigEndian) { unsafe [UInt8]($0) }
        stored += part
      }
    }
  }

  /// - Parameter path: the present path of the main file.
  /// - Returns: nil if the bytes are of another form.
  init?(stored: [UInt8], path: String) {
    guard stored.first == 0 else {
      self = [ConfigurationText(path: path, bytes: stored)]
      return
    }
    var rest = stored.dropFirst()
    func part() -> [UInt8]? {
      guard rest.count >= 4 else { return nil }
      let count = rest.prefix(4).reduce(0) { $0 << 8 | Int($1) }
      guard rest.count - 4 >= count else { return nil }
      defer { rest = rest.dropFirst(4 + count) }
      return [UInt8](rest.dropFirst(4).prefix(count))
    }
    self = []
    while !rest.isEmpty {
      guard let name = part(), let bytes = part() else { return nil }
      append(ConfigurationText(path: isEmpty ? path : String(decoding: name, as: UTF8.self), bytes: bytes))
    }
  }
}
