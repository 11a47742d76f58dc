import CSystemd
import Glibc

/// Recognizes the journal's entries that the daemon itself has caused: as events they would cause further ones.
///
/// These are the entries of its unit, with the programs that it runs, by the name of the unit: it outlives a restart, and
/// only systemd assigns it. An entry of another streamd, or of one that runs without a unit, has its command and user.
/// Entries about the unit, which systemd writes, are not the daemon's.
struct OwnJournalEntries: Equatable {
  /// The fields of an entry that say who has written it. journald adds them, not the client.
  struct Author: Equatable {
    var unit: [UInt8] = []
    var userUnit: [UInt8] = []
    var command: [UInt8] = []
    var user: [UInt8] = []

    /// - Parameter field: `NAME=value`.
    mutating func note(_ field: Span<UInt8>) {
      guard field.count > 5, field.count < 512, field[0] == UInt8(ascii: "_") else { return }
      if let value = field.value(of: "_SYSTEMD_UNIT=") { unit = value }
      if let value = field.value(of: "_SYSTEMD_USER_UNIT=") { userUnit = value }
      if let value = field.value(of: "_COMM=") { command = value }
      if let value = field.value(of: "_UID=") { user = value }
    }
  }

  /// The name of the system's unit, if that is a service; empty: none.
  var unit: [UInt8] = []
  /// The name of the user's unit, if that is a service; empty: none.
  var userUnit: [UInt8] = []
  var command: [UInt8]
  var user: [UInt8]

  func contains(_ author: Author) -> Bool {
    if !unit.isEmpty, author.unit == unit { return true }
    guard author.user == user else { return false }
    return !command.isEmpty && author.command == command || !userUnit.isEmpty && author.userUnit == userUnit
  }

  /// Those of the daemon, whose child this process is.
  static func ofParent() -> Self {
    var own = Self(command: commandOfParent(), user: Array("\(geteuid())".utf8))
    // A session or a scope has other programs, too.
    var name: UnsafeMutablePointer<CChar>?
    if unsafe sd_pid_get_user_unit(0, &name) >= 0 {
      unsafe own.userUnit = service(name)
    } else if unsafe sd_pid_get_unit(0, &name) >= 0 {
      unsafe own.unit = service(name)
    }
    return own
  }

  private static func service(_ name: UnsafeMutablePointer<CChar>?) -> [UInt8] {
    guard let name = unsafe name else { return [] }
    defer { unsafe free(name) }
    let text = unsafe String(cString: name)
    return text.hasSuffix(".service") ? Array(text.utf8) : []
  }

  private static func commandOfParent() -> [UInt8] {
    let file = unsafe open("/proc/\(getppid())/comm", O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return [] }
    defer { close(file) }
    var bytes = [UInt8](repeating: 0, count: 64)
    let count = unsafe read(file, &bytes, bytes.count)
    return Array(bytes.prefix(max(0, count)).prefix { $0 != 0x0A })
  }
}

extension Span<UInt8> {
  /// - Returns: what follows the name; nil: another field.
  fileprivate func value(of name: StaticString) -> [UInt8]? {
    let length = name.utf8CodeUnitCount
    guard length <= count else { return nil }
    for index in 0..<length where unsafe self[index] != name.utf8Start[index] { return nil }
    return copy(of: length..<count)
  }
}
