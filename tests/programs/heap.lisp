;;; Fills the heap with lists and vectors while two threads make garbage of their own, so that collections stop
;;; threads at work and at rest; drops and replaces some, and checks all.
;;; usage: sbcl --script heap.lisp MIB
(let* ((mib (parse-integer (second sb-ext:*posix-argv*)))
       (count (* mib 5000))
       (table (make-hash-table :size count))
       (sum 0)
       (workers
         (loop for owner from 1 to 2
               collect (let ((owner owner))
                         (sb-thread:make-thread
                          (lambda ()
                            (loop with kept = '()
                                  for round from 1 to (* mib 40)
                                  do (push (loop for i below 100 collect (+ i round owner)) kept)
                                     (when (zerop (mod round 50))
                                       (assert (= (length (first kept)) 100))
                                       (assert (= (first (car (last kept))) (+ (- round 49) owner)))
                                       (setf kept '())
                                       (sleep 0.001))
                                  finally (return owner))))))))
  (flet ((make (number version) (list number (make-array 10 :initial-element (+ number version)))))
    (dotimes (number count) (setf (gethash number table) (make number 1)))
    (loop for number below count by 3 do (setf (gethash number table) (make number 2)))
    (sb-ext:gc :full t)
    (dotimes (number count)
      (destructuring-bind (known vector) (gethash number table)
        (assert (= known number))
        (assert (every (lambda (word) (= word (+ number (if (zerop (mod number 3)) 2 1)))) vector))
        (setf sum (mod (+ (* sum 31) (aref vector 7)) 4294967296)))))
  (assert (equal (mapcar #'sb-thread:join-thread workers) '(1 2)))
  (format t "whole ~a~%" sum))
