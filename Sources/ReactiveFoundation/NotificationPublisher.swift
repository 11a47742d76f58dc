import Foundation
import Reactive

extension NotificationCenter {
  /// Delivers the notifications of a name, from one object or from any.
  public func publisher(for name: Notification.Name, object: AnyObject? = nil) -> Publisher {
    Publisher(center: self, name: name, object: object)
  }

  /// Delivers notifications, on the thread that posts them.
  ///
  /// Demand: a notification passes by whoever has none.
  public struct Publisher: Reactive.Publisher {
    /// What is posted.
    public typealias Output = Notification
    /// Can't fail.
    public typealias Failure = Never
    /// Where it is posted.
    public let center: NotificationCenter
    /// Under what name.
    public let name: Notification.Name
    /// By whom; `nil`: by anybody.
    public let object: AnyObject?

    /// `center.publisher(for: name, object: object)`
    public init(center: NotificationCenter, name: Notification.Name, object: AnyObject? = nil) {
      self.center = center
      self.name = name
      self.object = object
    }

    /// Attaches the subscriber, until it cancels.
    public func receive<S: Subscriber<Notification, Never>>(subscriber: S) {
      let subject = Posted()
      let observer = center.addObserver(forName: name, object: object, queue: nil) { subject.notifications.send($0) }
      subject.notifications.handleEvents(receiveCancel: { [center] in center.removeObserver(observer) })
        .subscribe(subscriber)
    }
  }

  /// Makes notifications from several threads a serial stream.
  private final class Posted: @unchecked Sendable {  // the subject is thread-safe
    let notifications = PassthroughSubject<Notification, Never>()
  }
}

extension NotificationCenter.Publisher: Equatable {
  /// The same notifications.
  public static func == (lhs: Self, rhs: Self) -> Bool {
    lhs.center === rhs.center && lhs.name == rhs.name && lhs.object === rhs.object
  }
}
