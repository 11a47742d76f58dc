import Foundation
import Glibc
import TestSupport
import Testing

/// A folder with journal files, which systemd-journal-remote writes.
struct JournalFiles {
  typealias Field = (name: String, value: [UInt8])

  /// The time of the first entry, in microseconds.
  static let start: UInt64 = 1_700_000_000_000_000

  let folder: TemporaryFolder
  private let input: TemporaryFolder

  init() throws {
    folder = try TemporaryFolder()
    input = try TemporaryFolder()
  }

  /// Appends entries.
  ///
  /// - Parameters:
  ///   - first: the number of the first one: its time is as many milliseconds after `start`.
  ///   - file: is made if it does not exist.
  func write(_ entries: [[Field]], from first: Int = 0, to file: String = "system.journal") async throws {
    var export: [UInt8] = []
    for (index, fields) in entries.enumerated() {
      let offset = UInt64(first + index) * 1000
      export +=
        """
        __REALTIME_TIMESTAMP=\(Self.start + offset)
        __MONOTONIC_TIMESTAMP=\(1_000_000 + offset)
        _BOOT_ID=0123456789abcdef0123456789abcdef

        """.utf8
      for (name, value) in fields {
        export += name.utf8
        export.append(0x0A)
        withUnsafeBytes(of: UInt64(value.count).littleEndian) { export += $0 }
        export += value
        export.append(0x0A)
      }
      export.append(0x0A)
    }
    try input.write(export, to: "export")
    let remote = try ChildProcess(
      "/lib/systemd/systemd-journal-remote", ["-o", folder.path(file), input.path("export")])
    let errors = await remote.text(of: remote.errors)
    #expect(await remote.end() == 0, "\(errors)")
  }

  /// Appends entries with a message each.
  func write(messages: [String], from first: Int = 0, to file: String = "system.journal") async throws {
    try await write(messages.map { [("MESSAGE", Array($0.utf8))] }, from: first, to: file)
  }

  /// The entries as journalctl shows them.
  func shown(_ options: [String] = []) async throws -> [JSONTree] {
    let program = try ChildProcess(
      "journalctl", ["--directory", folder.path, "--output=json", "--all", "-q"] + options)
    let text = await program.text(of: program.output)
    #expect(await program.end() == 0)
    return try text.split(separator: "\n").map { try JSONTree(String($0)) }
  }
}

/// A JSON value.
indirect enum JSONTree: Decodable, Equatable {
  case null
  case number(Int)
  case text(String)
  case list([JSONTree])
  case object([String: JSONTree])

  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    if container.decodeNil() {
      self = .null
    } else if let number = try? container.decode(Int.self) {
      self = .number(number)
    } else if let text = try? container.decode(String.self) {
      self = .text(text)
    } else if let list = try? container.decode([JSONTree].self) {
      self = .list(list)
    } else {
      self = .object(try container.decode([String: JSONTree].self))
    }
  }

  /// - Parameter text: an object has no `__SEQNUM` and `__SEQNUM_ID`, which later versions of journalctl add.
  init(_ text: String) throws {
    self = try JSONDecoder().decode(Self.self, from: Data(text.utf8))
    guard case .object(var members) = self else { return }
    members["__SEQNUM"] = nil
    members["__SEQNUM_ID"] = nil
    self = .object(members)
  }

  subscript(name: String) -> JSONTree? {
    if case .object(let members) = self { members[name] } else { nil }
  }

  var text: String? { if case .text(let text) = self { text } else { nil } }
}
