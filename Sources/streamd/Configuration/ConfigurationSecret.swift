/// A secret, read from the unit's credentials. Prints as its name, whatever prints it.
struct Secret: Sendable, Equatable {
  /// The credential's name, which is no secret.
  let name: String
  /// The secret itself: not empty, no control characters (it becomes part of a header).
  let content: String
}

extension Secret: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  var description: String { "credential \"\(name)\"" }
  var debugDescription: String { description }
  /// Without it `dump` and every interpolation of a surrounding value would show `content`.
  var customMirror: Mirror { Mirror(self, children: ["name": name]) }
}

/// The folder in which the service manager puts a unit's credentials (`LoadCredential=`), a file for each.
struct CredentialFolder {
  /// `$CREDENTIALS_DIRECTORY`; `nil` outside of a unit and in a unit without credentials.
  let path: String?

  /// Why a credential cannot be used. Says nothing of its content.
  struct Refusal: Error {
    let reason: String
  }

  /// Why there is none at all.
  static let absence = Refusal(reason: "CREDENTIALS_DIRECTORY is not set")

  /// Reads the credential `name`, without the newline at its end.
  ///
  /// - Parameter name: a file name, see `isName`.
  /// - Throws: `Refusal` when there is no folder or no such file, over 1 MiB (the service manager's own limit), when
  ///   it is empty, no UTF-8, or holds control characters.
  func secret(named name: String) throws(Refusal) -> Secret {
    guard let path else { throw Self.absence }
    let bytes: [UInt8]
    do {
      bytes = try readFile(at: "\(path)/\(name)", limit: 1 << 20)
    } catch {
      throw Refusal(reason: error.reason)
    }
    guard var content = String(validating: bytes, as: UTF8.self) else { throw Refusal(reason: "it is not UTF-8") }
    if content.last?.isNewline == true { content.removeLast() }
    guard !content.isEmpty else { throw Refusal(reason: "it is empty") }
    guard !content.hasControlCharacters else { throw Refusal(reason: "it contains control characters") }
    return Secret(name: name, content: content)
  }

  /// Whether `name` can name a credential: a file name of printable ASCII, at most 255 bytes, no colon. Source:
  /// systemd, `credential_name_valid`.
  static func isName(_ name: String) -> Bool {
    (1...255).contains(name.utf8.count) && name != "." && name != ".."
      && name.utf8.allSatisfy { (0x20...0x7e).contains($0) && $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: ":") }
  }
}

extension String {
  /// Whether it has C0 or C1 control characters or DEL: none belongs into a header, a path or a line of a log.
  var hasControlCharacters: Bool {
    unicodeScalars.contains { $0.properties.generalCategory == .control }
  }
}
