import Glibc
import StreamServer

extension ConfigurationShape where Value == AccessRules.Rule {
  /// `"*"`, `"user:NAME"`, `"group:NAME"`, `"uid:N"` or `"gid:N"`. Names are looked up in the system's databases.
  static var accessRule: Self {
    Self { node throws(Expected) in
      let forms = Expected(#""*", "user:NAME", "group:NAME", "uid:N" or "gid:N""#)
      guard case .string(let text) = node.value else { throw forms }
      if text == "*" { return .anyone }
      let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
      guard parts.count == 2, !parts[1].isEmpty, !text.hasControlCharacters else { throw forms }
      switch parts[0] {
      case "user": return .user(try lookUp("user") { userID(named: String(parts[1])) })
      case "group": return .group(try lookUp("group") { groupID(named: String(parts[1])) })
      // The highest number is (uid_t) -1, which means "no user" in every system call.
      case "uid": if let id = UInt32(parts[1]), id != .max { return .user(id) }
      case "gid": if let id = UInt32(parts[1]), id != .max { return .group(id) }
      default: break
      }
      throw forms
    }
  }
}

/// The result of a database lookup.
private enum Answer {
  case id(UInt32)
  case unknown
  case failed(code: CInt)
}

private func lookUp(_ kind: String, _ ask: () -> Answer) throws(Expected) -> UInt32 {
  switch ask() {
  case .id(let id): return id
  case .unknown: throw Expected("a \(kind) that exists")
  case .failed(let code): throw Expected(unsafe "a \(kind) that can be resolved (\(String(cString: strerror(code))))")
  }
}

private func userID(named name: String) -> Answer {
  withGrowingBuffer { buffer in
    var entry = unsafe passwd()
    var found: UnsafeMutablePointer<passwd>?
    let code = unsafe getpwnam_r(name, &entry, &buffer, buffer.count, &found)
    return unsafe answer(code, found == nil ? nil : entry.pw_uid)
  }
}

private func groupID(named name: String) -> Answer {
  withGrowingBuffer { buffer in
    var entry = unsafe group()
    var found: UnsafeMutablePointer<group>?
    let code = unsafe getgrnam_r(name, &entry, &buffer, buffer.count, &found)
    return unsafe answer(code, found == nil ? nil : entry.gr_gid)
  }
}

private func answer(_ code: CInt, _ id: UInt32?) -> Answer {
  if let id { return .id(id) }
  // getpwnam(3) lists these beside 0 for a name that was not found.
  return [0, ENOENT, ESRCH, EBADF, EPERM].contains(code) ? .unknown : .failed(code: code)
}

/// Repeats the lookup with a larger buffer while it returns ERANGE: a group with thousands of members needs a large
/// one.
private func withGrowingBuffer(_ ask: (inout [CChar]) -> Answer) -> Answer {
  var byteCount = 4096
  while true {
    var buffer = [CChar](repeating: 0, count: byteCount)
    let answer = ask(&buffer)
    guard case .failed(code: ERANGE) = answer, byteCount < 16 << 20 else { return answer }
    byteCount *= 4
  }
}
