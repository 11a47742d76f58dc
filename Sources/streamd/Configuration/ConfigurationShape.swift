import StreamRuntime
import StreamServer

/// The expected form of a value; ends the sentence "expected …".
struct Expected: Error {
  let text: String

  init(_ text: String) {
    self.text = text
  }
}

/// The valid form of a key's value, and its conversion.
struct ConfigurationShape<Value>: Sendable {
  let read: @Sendable (ConfigurationNode) throws(Expected) -> Value
  /// Writes a value in TOML, as in the file; nil for shapes that no default has.
  let write: (@Sendable (Value) -> String)?
  /// Where texts of this form have expressions, in the configuration of a template.
  private(set) var place = TextExpansion.Place.fixed

  init(
    write: (@Sendable (Value) -> String)? = nil,
    _ read: @escaping @Sendable (ConfigurationNode) throws(Expected) -> Value
  ) {
    self.read = read
    self.write = write
  }

  /// The same form with expressions at this place.
  func expanding(_ place: TextExpansion.Place) -> Self {
    var shape = self
    shape.place = place
    return shape
  }
}

extension ConfigurationShape where Value == Int {
  /// A whole number.
  static func count(_ range: ClosedRange<Int>) -> Self {
    Self(write: { "\($0)" }) { node throws(Expected) in
      guard case .integer(let number) = node.value, range.contains(number) else {
        throw Expected("a whole number from \(range.lowerBound) to \(range.upperBound)")
      }
      return number
    }
  }

  /// A number of bytes: digits and `B`, `KiB`, `MiB` or `GiB`.
  static func size(_ range: ClosedRange<Int>) -> Self {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)]
    return Self(write: { ConfigurationNode.quoted(written($0, units)) }) { node throws(Expected) in
      guard case .string(let text) = node.value, let size = quantity(text, units) else {
        throw Expected("a size such as \"64KiB\"")
      }
      guard range.contains(size) else {
        throw Expected("a size from \(written(range.lowerBound, units)) to \(written(range.upperBound, units))")
      }
      return size
    }
  }
}

extension ConfigurationShape where Value == Duration {
  /// A time: digits and `ms`, `s`, `m`, `h` or `d`. At most 365 days, with which no computation of times overflows.
  static func duration(from shortest: Duration = .milliseconds(1)) -> Self {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)]
    return Self(write: { ConfigurationNode.quoted(written(Int($0 / .milliseconds(1)), units)) }) {
      node throws(Expected) in
      guard case .string(let text) = node.value, let milliseconds = quantity(text, units) else {
        throw Expected("a duration such as \"30s\"")
      }
      guard milliseconds <= 365 * 86_400_000, .milliseconds(milliseconds) >= shortest else {
        let least = shortest == .zero ? "0s" : written(Int(shortest / .milliseconds(1)), units)
        throw Expected("a duration from \(least) to 365d")
      }
      return .milliseconds(milliseconds)
    }
  }
}

extension ConfigurationShape where Value == Duration? {
  /// A time, or `never`, which is `nil`.
  static var durationOrNever: Self {
    let duration = ConfigurationShape<Duration>.duration()
    return Self(write: { time in time.flatMap { duration.write?($0) } ?? "\"never\"" }) { node throws(Expected) in
      if case .string("never") = node.value { return nil }
      do throws(Expected) {
        return try duration.read(node)
      } catch {
        throw Expected("\(error.text), or \"never\"")
      }
    }
  }
}

/// The value of digits and one of `units`, in the smallest unit. A number above `Int.max` becomes `Int.max`, which is
/// out of every range. `nil` for anything else, including a sign, a space or a fraction.
private func quantity(_ text: String, _ units: [(name: String, factor: Int)]) -> Int? {
  let digits = text.utf8.prefix { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
  let name = text.dropFirst(digits.count)
  guard !digits.isEmpty, let unit = units.first(where: { $0.name == name }) else { return nil }
  let (product, overflows) = (Int(Substring(digits)) ?? .max).multipliedReportingOverflow(by: unit.factor)
  return overflows ? .max : product
}

/// `number` in the largest unit that needs no fraction.
private func written(_ number: Int, _ units: [(name: String, factor: Int)]) -> String {
  let unit = units.first { number >= $0.factor && number % $0.factor == 0 } ?? units.last ?? ("", 1)
  return "\(number / unit.factor)\(unit.name)"
}

extension ConfigurationShape where Value: CaseIterable & Equatable & Sendable {
  /// One of the cases of an enumeration, by its name.
  static func choice(_ name: @escaping @Sendable (Value) -> String) -> Self {
    Self(write: { ConfigurationNode.quoted(name($0)) }) { node throws(Expected) in
      guard case .string(let text) = node.value, let choice = Value.allCases.first(where: { name($0) == text }) else {
        let names = Value.allCases.map { "\"\(name($0))\"" }
        throw Expected("\(names.dropLast().joined(separator: ", ")) or \(names.last ?? "")")
      }
      return choice
    }
  }
}

extension ConfigurationShape
where Value: CaseIterable & Equatable & Sendable & RawRepresentable, Value.RawValue == String {
  /// One of the cases of an enumeration, by its raw value.
  static var choice: Self { choice { $0.rawValue } }
}

extension ConfigurationShape where Value == String {
  /// A string that satisfies `isValid`; `what` describes it.
  static func text(_ what: String, where isValid: @escaping @Sendable (String) -> Bool) -> Self {
    Self(write: ConfigurationNode.quoted) { node throws(Expected) in
      guard case .string(let text) = node.value, isValid(text) else { throw Expected(what) }
      return text
    }
  }

  /// An absolute path. That of a Unix socket has at most 107 bytes: `sun_path` has 108, one of them for the NUL.
  static func path(upTo most: Int) -> Self {
    text("an absolute path of at most \(most) bytes") {
      $0.utf8.first == UInt8(ascii: "/") && $0.utf8.count <= most && !$0.hasControlCharacters
    }
  }

  /// A host name as in the Host field of a request, without a port.
  static var hostName: Self {
    text("a host name in small letters, without a port, such as \"stream.example.org\"") { text in
      (1...253).contains(text.utf8.count)
        && text.utf8.allSatisfy {
          (UInt8(ascii: "a")...UInt8(ascii: "z")).contains($0) || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0)
            || $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: ".")
        }
    }
  }

  /// An origin as browsers send it. Source: RFC 6454, section 6.2.
  static var origin: Self {
    text("an origin such as \"https://dashboard.example.org\", without a path") { text in
      guard let scheme = ["http://", "https://"].first(where: { text.hasPrefix($0) }) else { return false }
      let host = text.utf8.dropFirst(scheme.utf8.count)
      return (1...260).contains(host.count)
        && host.allSatisfy { (0x21...0x7e).contains($0) && $0 != UInt8(ascii: "/") && !(0x41...0x5a).contains($0) }
    }
  }

  /// A media type, which is not checked against the registry.
  static var mediaType: Self {
    text("a media type such as \"application/json\"") { text in
      let bytes = text.utf8
      return bytes.count <= 255 && bytes.allSatisfy { (0x20...0x7e).contains($0) }
        && text.split(separator: "/", omittingEmptySubsequences: false).prefix(2).filter { !$0.isEmpty }.count == 2
    }
  }
}

extension ConfigurationShape where Value == InternetAddress {
  /// An address and a port for TCP.
  static var internetAddress: Self {
    Self { node throws(Expected) in
      guard case .string(let text) = node.value, let address = InternetAddress(text) else {
        throw Expected("an address and a port such as \"127.0.0.1:7878\" or \"[::1]:7878\"")
      }
      return address
    }
  }
}

extension ConfigurationShape where Value == Bool {
  static var flag: Self {
    Self(write: { "\($0)" }) { node throws(Expected) in
      guard case .boolean(let flag) = node.value else { throw Expected("true or false") }
      return flag
    }
  }
}

extension ConfigurationShape where Value == UInt32 {
  /// Permission bits, octal in a string, as in chmod(1).
  static var mode: Self {
    Self(write: { ConfigurationNode.quoted("0" + String($0, radix: 8)) }) { node throws(Expected) in
      guard case .string(let text) = node.value, (3...4).contains(text.utf8.count), text.utf8.first != 0x2B,
        let mode = UInt32(text, radix: 8), mode <= 0o777
      else {
        throw Expected("permissions in octal such as \"0660\"")
      }
      return mode
    }
  }
}
