import Glibc

/// A system call that failed: the machine's fault, told with the call's name and what it was called on.
public struct SystemError: Error, Equatable, CustomStringConvertible {
  /// The call, as in its man page: `bind`.
  public let call: String
  /// What it was called on, when that helps whoever reads it: a path. Empty when there is nothing to add.
  public let subject: String
  /// The `errno` it left.
  public let code: CInt

  /// Takes `errno` as it stands: make the error beside the call, before anything else can set it.
  public init(_ call: String, _ subject: String = "", code: CInt = errno) {
    self.call = call
    self.subject = subject
    self.code = code
  }

  /// One line: `bind /run/x.sock: Address already in use`.
  public var description: String {
    unsafe "\(call)\(subject.isEmpty ? "" : " " + subject): \(String(cString: strerror(code)))"
  }
}
