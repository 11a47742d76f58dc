import CLinux
import Glibc
import StreamRuntime

/// A measured server process, which ends with this value; its files are in a folder that is removed with it.
final class ServerProcess {
  let folder: String
  let id: pid_t

  /// - Parameters:
  ///   - files: names and contents, created in the folder.
  ///   - arguments: receives the folder.
  init(
    _ program: String, files: [String: String] = [:], environment: (String) -> [String] = { _ in [] },
    arguments: (String) -> [String]
  ) throws {
    folder = try Self.temporaryFolder()
    for (name, content) in files {
      guard let file = unsafe fopen("\(folder)/\(name)", "w") else { throw SystemError("fopen", "\(folder)/\(name)") }
      unsafe fputs(content, file)
      unsafe fclose(file)
    }
    var server = Spawn([program] + arguments(folder))
    server.environment = environment(folder)
    id = try server.start()
  }

  deinit {
    kill(id, SIGTERM)
    waitpid(id, nil, 0)
    Self.remove(folder)
  }

  /// A new folder.
  static func temporaryFolder() throws -> String {
    let temporary = unsafe getenv("TMPDIR").map { unsafe String(cString: $0) } ?? "/tmp"
    var template = Array("\(temporary)/streambench-XXXXXX".utf8CString)
    guard unsafe mkdtemp(&template) != nil else { throw SystemError("mkdtemp") }
    return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  /// Removes a folder and what is in it.
  static func remove(_ folder: String) {
    for path in ((try? names(in: folder)) ?? []).map({ "\(folder)/\($0)" }) where unsafe unlink(path) != 0 {
      remove(path)
    }
    unsafe rmdir(folder)
  }

  /// Retries until the server responds, for ten seconds.
  func waitUntilItServes(_ connect: () throws -> CInt) throws {
    let deadline = monotonicSeconds() + 10
    while true {
      if let descriptor = try? connect() {
        close(descriptor)
        return
      }
      guard monotonicSeconds() < deadline else { throw BenchError("the server does not answer") }
      usleep(2000)
    }
  }

  /// Resident memory, without file mappings.
  func residentBytes() throws -> Int {
    try status(of: "/proc/\(id)/status").reduce(0) {
      ["RssAnon:", "RssShmem:"].contains($1.key) ? $0 + $1.value * 1024 : $0
    }
  }

  /// The processor time of all its threads, in steps of 10 ms.
  func processorSeconds() throws -> Double {
    guard let file = unsafe fopen("/proc/\(id)/stat", "r") else { throw SystemError("fopen", "/proc/\(id)/stat") }
    defer { unsafe fclose(file) }
    var line = [CChar](repeating: 0, count: 1024)
    unsafe fgets(&line, CInt(line.count), file)
    let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    // After the name in brackets, which may contain anything: state, then 10 others, then user and system time.
    let fields = text[(text.lastIndex(of: ")") ?? text.startIndex)...].split(separator: " ")
    guard fields.count > 13, let user = Double(fields[12]), let system = Double(fields[13]) else {
      throw BenchError("/proc/\(id)/stat is not understood")
    }
    return (user + system) / Double(sysconf(CInt(_SC_CLK_TCK)))
  }

  /// The number of voluntary context switches of each thread: each causes a wake-up.
  func voluntarySwitches() throws -> [String: Int] {
    var switches: [String: Int] = [:]
    for task in try Self.names(in: "/proc/\(id)/task") {
      switches[task] = try? status(of: "/proc/\(id)/task/\(task)/status")["voluntary_ctxt_switches:"]
    }
    return switches
  }

  func descriptorCount() throws -> Int { try Self.names(in: "/proc/\(id)/fd").count }

  private static func names(in folder: String) throws(SystemError) -> [String] {
    guard let entries = unsafe opendir(folder) else { throw SystemError("opendir", folder) }
    defer { unsafe closedir(entries) }
    var names: [String] = []
    while let entry = unsafe readdir(entries) {
      unsafe names.append(
        withUnsafePointer(to: &entry.pointee.d_name) {
          unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
        })
    }
    return names.filter { $0 != "." && $0 != ".." }
  }

  /// The numbers in a file of lines `Name: number …`.
  private func status(of path: String) throws -> [String: Int] {
    guard let file = unsafe fopen(path, "r") else { throw SystemError("fopen", path) }
    defer { unsafe fclose(file) }
    var numbers: [String: Int] = [:]
    var line = [CChar](repeating: 0, count: 256)
    while unsafe fgets(&line, CInt(line.count), file) != nil {
      let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
      let words = text.split(whereSeparator: \.isWhitespace)
      if words.count > 1, let number = Int(words[1]) { numbers[String(words[0])] = number }
    }
    return numbers
  }
}

func monotonicNanoseconds() -> UInt64 { EventLoop.monotonicNow() }
func monotonicSeconds() -> Double { Double(EventLoop.monotonicNow()) / 1e9 }
