{-# LANGUAGE MultiParamTypeClasses #-}
{-# LANGUAGE PatternSynonyms #-}
{-# LANGUAGE TypeFamilies #-}
{-# LANGUAGE ViewPatterns #-}

-- | The result of one operation: one signed integer, so that a vector of results is the array that
-- the C library has filled.
module System.IO.BlockIO.Result (
    IOResult (IOResult, IOError),
    resultsFrom,
  ) where

import Data.Primitive.ByteArray (ByteArray)
import qualified Data.Vector.Generic as G
import qualified Data.Vector.Generic.Mutable as GM
import qualified Data.Vector.Primitive as P
import qualified Data.Vector.Unboxed as U
import qualified Data.Vector.Unboxed.Mutable as UM
import Foreign.C.Error (Errno (..))
import System.Posix.Types (ByteCount)

-- | The result of one operation: 'IOResult' with the number of bytes moved, which can be smaller
-- than requested, or 'IOError' with the (positive) error number.
newtype IOResult = Raw Int
  deriving (Eq)

{-# COMPLETE IOResult, IOError #-}

-- | The number of bytes read or written. A read at the end of the file returns 0.
pattern IOResult :: ByteCount -> IOResult
pattern IOResult count <- (bytes -> Just count)
  where
    IOResult count = Raw (fromIntegral count)

-- | The operation has failed.
pattern IOError :: Errno -> IOResult
pattern IOError errno <- (failure -> Just errno)
  where
    IOError (Errno errno) = Raw (negate (fromIntegral errno))

bytes :: IOResult -> Maybe ByteCount
bytes (Raw n)
  | n >= 0 = Just (fromIntegral n)
  | otherwise = Nothing

failure :: IOResult -> Maybe Errno
failure (Raw n)
  | n < 0 = Just (Errno (fromIntegral (negate n)))
  | otherwise = Nothing

instance Show IOResult where
  showsPrec level (Raw n)
    | n >= 0 = showParen (level > 10) (showString "IOResult " . shows n)
    | otherwise = showParen (level > 10) (showString "IOError (Errno " . shows (negate n) . showChar ')')

-- | Views @count@ integers of an array, from the one with index @first@, as results.
resultsFrom :: Int -> Int -> ByteArray -> U.Vector IOResult
resultsFrom first count array = V_IOResult (P.Vector first count array)

newtype instance UM.MVector s IOResult = MV_IOResult (P.MVector s Int)

newtype instance U.Vector IOResult = V_IOResult (P.Vector Int)

instance U.Unbox IOResult

instance GM.MVector UM.MVector IOResult where
  {-# INLINE basicLength #-}
  basicLength (MV_IOResult v) = GM.basicLength v
  {-# INLINE basicUnsafeSlice #-}
  basicUnsafeSlice i n (MV_IOResult v) = MV_IOResult (GM.basicUnsafeSlice i n v)
  {-# INLINE basicOverlaps #-}
  basicOverlaps (MV_IOResult v) (MV_IOResult w) = GM.basicOverlaps v w
  {-# INLINE basicUnsafeNew #-}
  basicUnsafeNew n = MV_IOResult <$> GM.basicUnsafeNew n
  {-# INLINE basicInitialize #-}
  basicInitialize (MV_IOResult v) = GM.basicInitialize v
  {-# INLINE basicUnsafeRead #-}
  basicUnsafeRead (MV_IOResult v) i = Raw <$> GM.basicUnsafeRead v i
  {-# INLINE basicUnsafeWrite #-}
  basicUnsafeWrite (MV_IOResult v) i (Raw n) = GM.basicUnsafeWrite v i n

instance G.Vector U.Vector IOResult where
  {-# INLINE basicUnsafeFreeze #-}
  basicUnsafeFreeze (MV_IOResult v) = V_IOResult <$> G.basicUnsafeFreeze v
  {-# INLINE basicUnsafeThaw #-}
  basicUnsafeThaw (V_IOResult v) = MV_IOResult <$> G.basicUnsafeThaw v
  {-# INLINE basicLength #-}
  basicLength (V_IOResult v) = G.basicLength v
  {-# INLINE basicUnsafeSlice #-}
  basicUnsafeSlice i n (V_IOResult v) = V_IOResult (G.basicUnsafeSlice i n v)
  {-# INLINE basicUnsafeIndexM #-}
  basicUnsafeIndexM (V_IOResult v) i = Raw <$> G.basicUnsafeIndexM v i
