import Glibc

/// A failed system call, with its name and its subject.
public struct SystemError: Error, Equatable, CustomStringConvertible {
  /// The call, as in its manual page: `bind`.
  public let call: String
  /// The subject of the call, such as a path; empty when it adds nothing.
  public let subject: String
  /// The call's `errno`.
  public let code: CInt
  /// The reason in words: what the system says of `code`, or for a look-up of a name, which has no `errno`, the resolver's words.
  public let reason: String

  /// Reads the present `errno`: create the error directly after the call, before other code can set it.
  public init(_ call: String, _ subject: String = "", code: CInt = errno) {
    self.init(call, subject, code: code, reason: unsafe String(cString: strerror(code)))
  }

  package init(_ call: String, _ subject: String, code: CInt, reason: String) {
    self.call = call
    self.subject = subject
    self.code = code
    self.reason = reason
  }

  /// One line: `bind /run/x.sock: Address already in use`.
  public var description: String {
    "\(call)\(subject.isEmpty ? "" : " " + subject): \(reason)"
  }
}
