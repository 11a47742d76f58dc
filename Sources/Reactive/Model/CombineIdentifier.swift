import Synchronization

/// Tells one stage of a pipeline from every other, in logs.
public struct CombineIdentifier: Hashable, Sendable, CustomStringConvertible {
  private let value: UInt
  private static let count = Atomic<UInt>(0)

  /// An identifier that no other call gives. Odd: no object has it.
  public init() { value = Self.count.wrappingAdd(1, ordering: .relaxed).newValue << 1 | 1 }

  /// The identity of an object, unique while the object lives.
  public init(_ object: AnyObject) { value = UInt(bitPattern: ObjectIdentifier(object)) }

  /// `0x` and the identifier in hexadecimal.
  public var description: String { "0x" + String(value, radix: 16) }
}

/// Something with an identity of its own, also when it is a value.
public protocol CustomCombineIdentifierConvertible {
  /// Who this is.
  var combineIdentifier: CombineIdentifier { get }
}

extension CustomCombineIdentifierConvertible where Self: AnyObject {
  /// The object's own identity.
  public var combineIdentifier: CombineIdentifier { CombineIdentifier(self) }
}
