import CSystemd
import Glibc

/// Whether the files of a journal may be read: to libsystemd a journal without rights is an empty one.
enum JournalAccess {
  /// - Returns: what the operator should know although some files can be read; nil: nothing.
  /// - Throws: why none can be read.
  static func check(_ directory: String?) throws(JournalReader.Failure) -> String? {
    let roots = if let directory { [directory] } else { try localDirectories() }
    var count = Count()
    for root in roots { count.add(root, depth: directory == nil ? 0 : 1) }
    guard count.hasDirectory else {
      let places = roots.joined(separator: " or ")
      throw JournalReader.Failure("there is no journal in \(places); is systemd-journald running?")
    }
    guard count.refused > 0 else { return nil }
    let remedy =
      "add SupplementaryGroups=systemd-journal to the unit, as in the example journal.conf, or the user to that group"
    guard count.readable > 0 else { throw JournalReader.Failure("this user may not read the journal: \(remedy)") }
    return "some files of the journal may not be read: \(remedy)"
  }

  private static func localDirectories() throws(JournalReader.Failure) -> [String] {
    var id = sd_id128_t()
    guard unsafe sd_id128_get_machine(&id) >= 0 else {
      throw JournalReader.Failure("this machine has no id (/etc/machine-id), by which its journal is found")
    }
    return ["/var/log/journal/\(id.hexadecimal)", "/run/log/journal/\(id.hexadecimal)"]
  }

  private struct Count {
    var hasDirectory = false
    var readable = 0
    var refused = 0

    /// - Parameter depth: the number of levels of directories below that are counted, too.
    mutating func add(_ directory: String, depth: Int) {
      guard let entries = unsafe opendir(directory) else {
        if errno == EACCES { (hasDirectory, refused) = (true, refused + 1) }
        return
      }
      defer { unsafe closedir(entries) }
      hasDirectory = true
      while let entry = unsafe readdir(entries) {
        let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
          unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
        }
        let path = "\(directory)/\(name)"
        if name.hasSuffix(".journal") || name.hasSuffix(".journal~") {
          if unsafe access(path, R_OK) == 0 { readable += 1 } else if errno == EACCES { refused += 1 }
        } else if depth > 0, !name.hasPrefix("."), unsafe entry.pointee.d_type == DT_DIR {
          add(path, depth: depth - 1)
        }
      }
    }
  }
}

extension sd_id128_t {
  /// 32 digits, as text.
  var hexadecimal: String {
    unsafe withUnsafeBytes(of: self) { bytes in
      unsafe bytes.reduce(into: "") { $0 += ($1 < 16 ? "0" : "") + String($1, radix: 16) }
    }
  }
}
