import Glibc

/// A secret from the unit's credentials. Every way of printing it shows only its name.
struct Secret: Sendable, Equatable {
  /// The credential's name, which is not secret.
  let name: String
  /// The secret itself: not empty, and without control characters, because it becomes part of a header. It may have
  /// several lines where these are allowed. Empty if it is not read, see `ConfigurationContext.readsSecrets` and
  /// `unread`.
  let content: String
}

extension Secret: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  var description: String { "credential \"\(name)\"" }
  var debugDescription: String { description }
  /// Hides `content` from `dump` and from interpolations of an enclosing value.
  var customMirror: Mirror { Mirror(self, children: ["name": name]) }
}

/// The names of credentials that were not read.
final class UnreadCredentials {
  private(set) var names: Set<String> = []

  func note(_ name: String) { names.insert(name) }
}

/// The directory of a unit's credentials (`LoadCredential=`), one file each.
struct CredentialFolder {
  /// `$CREDENTIALS_DIRECTORY`; `nil` outside of a unit and in a unit without credentials.
  let path: String?

  /// Why a credential cannot be used. Contains nothing of the secret.
  struct Refusal: Error {
    let reason: String
  }

  /// The remark of `--check` on credentials that this process does not have; nil: there are none.
  static func remark(on unread: [String]) -> String? {
    unread.isEmpty
      ? nil
      : "\(counted(unread.count, "credential")) not checked, which only the unit has (CREDENTIALS_DIRECTORY is not set): "
        + unread.joined(separator: ", ")
  }

  /// The error for a credential that the unit does not pass, with the remedy.
  ///
  /// - Parameter reason: what shows that it is not passed.
  static func absence(of name: String, _ reason: String = "CREDENTIALS_DIRECTORY is not set") -> Refusal {
    Refusal(
      reason:
        "\(reason); the unit passes it with LoadCredential=\(name) in [Service] (systemctl edit streamd), after a restart"
    )
  }

  /// Reads the credential `name`, without its final newline.
  ///
  /// - Parameters:
  ///   - name: a file name as `isName` permits it.
  ///   - allowsLines: whether it may have several lines.
  /// - Throws: `Refusal` when there is no directory or no such file, when it exceeds 1 MiB (the service manager's own
  ///   limit), is empty, is not UTF-8, or contains control characters.
  func secret(named name: String, allowsLines: Bool = false) throws(Refusal) -> Secret {
    guard let path else { throw Self.absence(of: name) }
    let bytes: [UInt8]
    do {
      bytes = try readFile(at: "\(path)/\(name)", limit: 1 << 20)
    } catch {
      let isThere = unsafe access("\(path)/\(name)", F_OK) == 0
      throw isThere ? Refusal(reason: error.reason) : Self.absence(of: name, error.reason)
    }
    guard var content = String(validating: bytes, as: UTF8.self) else { throw Refusal(reason: "it is not UTF-8") }
    if content.last?.isNewline == true { content.removeLast() }
    guard !content.isEmpty else { throw Refusal(reason: "it is empty") }
    let text = allowsLines ? content.replacing("\r\n", with: " ").replacing("\n", with: " ") : content
    guard !text.hasControlCharacters else { throw Refusal(reason: "it contains control characters") }
    return Secret(name: name, content: content)
  }

  /// Whether `name` is a valid credential name: a file name of printable ASCII, at most 255 bytes, without a colon.
  /// Source: systemd, `credential_name_valid`.
  static func isName(_ name: String) -> Bool {
    (1...255).contains(name.utf8.count) && name != "." && name != ".."
      && name.utf8.allSatisfy { (0x20...0x7e).contains($0) && $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: ":") }
  }
}

extension String {
  /// Whether it has a character that separates a secret from the rest of a URL, of an option or of a variable.
  var mayHoldSecret: Bool { utf8.contains { "@?#;%=".utf8.contains($0) } }

  /// Whether it contains C0 or C1 control characters or DEL, which are invalid in a header, a path or a log line.
  var hasControlCharacters: Bool {
    unicodeScalars.contains { $0.properties.generalCategory == .control }
  }
}
