import Glibc
import StreamServer

extension ConfigurationShape where Value == AccessRules.Rule {
  /// `"*"`, `"user:NAME"`, `"group:NAME"`, `"uid:N"` or `"gid:N"`. Names are looked up in the system's databases. A name that comes
  /// of an expression, and that nobody has, is a rule that admits nobody.
  /// - Parameter memory: has the names that were looked up.
  static func accessRule(_ memory: TemplateMemory?) -> Self {
    let rule = Self { node throws(Expected) in
      let forms = Expected(#""*", "user:NAME", "group:NAME", "uid:N" or "gid:N""#)
      guard case .string(let text) = node.value else { throw forms }
      if text == "*" { return .anyone }
      let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
      guard parts.count == 2, !parts[1].isEmpty, !text.hasControlCharacters else { throw forms }
      switch parts[0] {
      case "user":
        return .user(try id(of: node, text, memory) { () throws(Expected) in try userID(named: String(parts[1])) })
      case "group":
        return .group(try id(of: node, text, memory) { () throws(Expected) in try groupID(named: String(parts[1])) })
      // The highest number is (uid_t) -1, which means "no user" in every system call.
      case "uid": if let id = UInt32(parts[1]), id != .max { return .user(id) }
      case "gid": if let id = UInt32(parts[1]), id != .max { return .group(id) }
      default: break
      }
      throw forms
    }
    return rule.expanding(.rule)
  }

  /// The same, or `"owner"`: who has made the stream.
  static func readerRule(_ memory: TemplateMemory?) -> Self {
    let rule = accessRule(memory)
    return Self { node throws(Expected) in
      if case .string("owner") = node.value { return .owner }
      return try rule.read(node)
    }.expanding(.rule)
  }

  private static func id(
    of node: ConfigurationNode, _ rule: String, _ memory: TemplateMemory?, find: () throws(Expected) -> UInt32
  ) throws(Expected) -> UInt32 {
    // The highest number is nobody's.
    if node.isExpanded { return (try? find()) ?? .max }
    guard let memory else { return try find() }
    return try memory.id(of: rule, find: find)
  }
}

private func userID(named name: String) throws(Expected) -> UInt32 {
  try lookUp("user") { buffer in
    var entry = unsafe passwd()
    var found: UnsafeMutablePointer<passwd>?
    let code = unsafe getpwnam_r(name, &entry, &buffer, buffer.count, &found)
    return unsafe (code, found == nil ? nil : entry.pw_uid)
  }
}

private func groupID(named name: String) throws(Expected) -> UInt32 {
  try lookUp("group") { buffer in
    var entry = unsafe group()
    var found: UnsafeMutablePointer<group>?
    let code = unsafe getgrnam_r(name, &entry, &buffer, buffer.count, &found)
    return unsafe (code, found == nil ? nil : entry.gr_gid)
  }
}

/// Repeats `ask` with a larger buffer while it returns ERANGE: a group with thousands of members needs a large one.
private func lookUp(
  _ kind: String, _ ask: (inout [CChar]) -> (code: CInt, id: UInt32?)
) throws(Expected) -> UInt32 {
  var byteCount = 4096
  while true {
    var buffer = [CChar](repeating: 0, count: byteCount)
    let (code, id) = ask(&buffer)
    if let id { return id }
    // The codes for a name that was not found, besides 0, according to getpwnam(3).
    if [0, ENOENT, ESRCH, EBADF, EPERM].contains(code) { throw Expected("a \(kind) that exists") }
    guard code == ERANGE, byteCount < 16 << 20 else {
      throw Expected(unsafe "a \(kind) that can be resolved (\(String(cString: strerror(code))))")
    }
    byteCount *= 4
  }
}
